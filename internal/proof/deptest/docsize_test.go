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

// bound is the most that the pages of a class may hold, in bytes.
type bound struct {
	most int
	each bool // in one page: a class whose pages are added and not changed
}

// bounds are those of all classes. They only shrink: a page that gets shorter lowers the bound of its class, since one
// that is more than slack above the size is a breach as well. A class that has to grow is a decision, for this list.
var bounds = map[string]bound{
	"user":        {most: 253_500},
	"scaling":     {most: 9_530}, // a fleet that outgrows a cluster, with tables that make scaling writes: no reader needs it at first
	"front":       {most: 57_000},
	"contributor": {most: 486_000}, // with a row for each failure that was found and for each mutant
	"design":      {most: 12_801, each: true},
}

// slack is by how much a bound may be above the size: a hundredth.
const slack = 100

// maxCell is the most that a cell of a table on a page that users read may show, in characters: at night, on a screen
// of a hundred columns, a longer one is no table.
const maxCell = 120

// longCells are the pages that have longer cells, with how many. The list was emptied, and stays so.
var longCells = map[string]int{}

// classOf returns for whom a page is.
func classOf(name string) string {
	switch dir := path.Dir(name); {
	case name == "docs/scaling.md":
		return "scaling"
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

// sizes returns what the bounds of the classes are about: the bytes of all pages together, or of the longest one.
func sizes(all map[string]string, bounds map[string]bound) map[string]int {
	of := map[string]int{}
	for name, page := range all {
		class := classOf(name)
		if bounds[class].each {
			of[class] = max(of[class], len(page))
		} else {
			of[class] += len(page)
		}
	}
	return of
}

// oversized compares the pages with the bounds of their classes.
func oversized(all map[string]string, bounds map[string]bound) (found []string) {
	of := sizes(all, bounds)
	for class, n := range of {
		switch b := bounds[class]; {
		case b.most == 0:
			found = append(found, "no bound is for the pages of class "+class)
		case n > b.most:
			found = append(found, fmt.Sprintf("the pages of class %s have %d bytes, more than %d: shorten them, or move evidence to internal/proof", class, n, b.most))
		case n < b.most-b.most/slack:
			found = append(found, fmt.Sprintf("the pages of class %s have %d bytes, and the bound is %d: lower it to %d, so that they stay as short", class, n, b.most, n))
		}
	}
	for class := range bounds {
		if of[class] == 0 {
			found = append(found, "no page is of class "+class)
		}
	}
	return found
}

// TestSizeOfPages prints how much there is to read for whom, and holds each class to its bound.
func TestSizeOfPages(t *testing.T) {
	all := pages(t)
	of := sizes(all, bounds)
	for _, class := range slices.Sorted(maps.Keys(of)) {
		t.Logf("%-12s %7d bytes, bound %d", class, of[class], bounds[class].most)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if classOf(name) == "user" {
			t.Logf("%-28s %7d", name, len(all[name]))
		}
	}
	for _, breach := range oversized(all, bounds) {
		t.Error(breach)
	}
}

// TestSizeOfPagesFails shows that a byte too many is found out, a bound that leaves room to grow, and a class without one.
func TestSizeOfPagesFails(t *testing.T) {
	small := map[string]bound{"user": {most: 1000}, "design": {most: 200, each: true}}
	for name, tt := range map[string]struct{ user, note, front, breaches int }{
		"full": {1000, 200, 0, 0}, "a hundredth below": {990, 198, 0, 0}, "a byte too many": {1001, 200, 0, 1}, "a long note": {1000, 201, 0, 1},
		"shorter": {989, 200, 0, 1}, "all notes shorter": {1000, 197, 0, 1}, "no bound": {1000, 200, 1, 1}, "no page": {0, 200, 0, 1},
	} {
		all := map[string]string{"docs/design/0001-a.md": strings.Repeat("x", tt.note), "docs/design/0002-b.md": "x"}
		if tt.user > 0 {
			all["docs/a.md"], all["docs/b.md"] = strings.Repeat("x", tt.user-1), "x"
		}
		if tt.front > 0 {
			all["README.md"] = "x"
		}
		if got := oversized(all, small); len(got) != tt.breaches {
			t.Errorf("%s: breaches %q, want %d", name, got, tt.breaches)
		}
	}
}

// TestCells holds the tables of pages that users read to what a reader can take in.
func TestCells(t *testing.T) {
	for name, page := range pages(t) {
		if class := classOf(name); class != "user" && class != "scaling" && class != "front" {
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
		"docs/limits.md": "user", "docs/design/0001-queue-and-keys.md": "design", "docs/model/README.md": "design", "README.md": "front", "docs/scaling.md": "scaling",
		"internal/proof/testing.md": "contributor", "docs/benchmarks/README.md": "contributor", "ARCHITECTURE.md": "contributor", "examples/fleet/README.md": "front",
	} {
		if got := classOf(name); got != want {
			t.Errorf("%s is for %s, want %s", name, got, want)
		}
	}
}
