package deptest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxUserPages is the most that all pages for users may hold, in bytes: they are read, not searched. It may only shrink.
const maxUserPages = 253_500

// maxCell is the most that a cell of a table on a page for users may show, in characters: at night, on a screen
// of a hundred columns, a longer one is no table.
const maxCell = 120

// longCells are the pages that have longer cells, with how many. The list was emptied, and stays so.
var longCells = map[string]int{}

// classOf returns for whom a page is.
func classOf(name string) string {
	switch dir := path.Dir(name); {
	case dir == "docs":
		return "user"
	case within(dir, "docs/design", "docs/model"):
		return "design"
	case within(dir, "internal", "docs/benchmarks"), name == "ARCHITECTURE.md", name == "CONTRIBUTING.md":
		return "contributor"
	}
	return "front" // README and what is beside it
}

// target is the part of a link that a reader does not see.
var target = regexp.MustCompile(`\]\([^)]*\)`)

// wideCells returns the cells of a page's tables that show more than maxCell.
func wideCells(page string) (found []string) {
	for line := range strings.Lines(fenced.ReplaceAllString(page, "")) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		shown := strings.NewReplacer("`", "", `\|`, "/").Replace(target.ReplaceAllString(line, "]"))
		for cell := range strings.SplitSeq(shown, "|") {
			if cell = strings.TrimSpace(cell); utf8.RuneCountInString(cell) > maxCell {
				found = append(found, cell)
			}
		}
	}
	return found
}

// TestSizeOfPages prints how much there is to read for whom, and holds the pages for users to their bound.
func TestSizeOfPages(t *testing.T) {
	all, sizes := pages(t), map[string]int{}
	for name, page := range all {
		sizes[classOf(name)] += len(page)
	}
	for _, class := range slices.Sorted(maps.Keys(sizes)) {
		t.Logf("%-12s %7d bytes", class, sizes[class])
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if classOf(name) == "user" {
			t.Logf("%-28s %7d", name, len(all[name]))
		}
	}
	if breach := tooMuch(all); breach != "" {
		t.Error(breach)
	}
	fits := map[string]string{"docs/a.md": strings.Repeat("x", maxUserPages-1), "docs/b.md": "x", "docs/design/0001-c.md": "x", "README.md": "x"}
	if breach := tooMuch(fits); breach != "" {
		t.Error(breach)
	}
	if fits["docs/b.md"] = "xx"; tooMuch(fits) == "" {
		t.Error("a byte too many passes")
	}
}

// tooMuch compares the pages for users with their bound.
func tooMuch(all map[string]string) string {
	n := 0
	for name, page := range all {
		if classOf(name) == "user" {
			n += len(page)
		}
	}
	if n <= maxUserPages {
		return ""
	}
	return fmt.Sprintf("the pages for users have %d bytes, more than %d: shorten them, or move evidence to internal/proof", n, maxUserPages)
}

// TestCells holds the tables of pages for users to what a reader can take in.
func TestCells(t *testing.T) {
	for name, page := range pages(t) {
		if classOf(name) != "user" {
			continue
		}
		if wide := wideCells(page); len(wide) > longCells[name] {
			t.Errorf("%s: %d cells show more than %d characters, such as %q: use two rows, or a list", name, len(wide), maxCell, wide[len(wide)-1])
		} else if len(wide) < longCells[name] {
			t.Errorf("%s: %d cells are too long, the list says %d: lower it", name, len(wide), longCells[name])
		}
	}
}

// TestCellsFail shows that a long cell is found out, and that what a reader does not see is no part of one.
func TestCellsFail(t *testing.T) {
	long := strings.Repeat("é", maxCell)
	for page, want := range map[string]int{
		"| a | " + long + " |\n":                                       0,
		"| a | " + long + "x |\n":                                      1,
		"| " + long + "x | `" + long + "` |\n":                         1,
		"| " + long[:200] + " [a](" + long + ".md#a) |\n":              0,
		"```sh\n| " + long + "x |\n```\n" + long + "x\n":               0,
		fmt.Sprintf("| %s | %s |\n| %s |\n", long+"1", long, long+"2"): 2,
	} {
		if got := wideCells(page); len(got) != want {
			t.Errorf("%.40q: %d cells, want %d", page, len(got), want)
		}
	}
	for name, want := range map[string]string{
		"docs/limits.md": "user", "docs/design/0001-queue-and-keys.md": "design", "docs/model/README.md": "design", "README.md": "front",
		"internal/proof/testing.md": "contributor", "docs/benchmarks/README.md": "contributor", "ARCHITECTURE.md": "contributor", "examples/fleet/README.md": "front",
	} {
		if got := classOf(name); got != want {
			t.Errorf("%s is for %s, want %s", name, got, want)
		}
	}
}
