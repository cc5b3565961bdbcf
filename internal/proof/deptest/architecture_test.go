package deptest

import (
	"os"
	"path"
	"regexp"
	"slices"
	"testing"
)

// folderRow is a row of one of ARCHITECTURE.md's tables of folders.
var folderRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\|$")

// notListed reports the folders with packages that the tables of a text do not name, and the
// rows that name none. A row covers the folders below its own.
func notListed(tr *tree, text string) (found []string) {
	var rows []string
	for _, row := range folderRow.FindAllStringSubmatch(text, -1) {
		rows = append(rows, row[1])
	}
	used := map[string]bool{}
	for _, f := range tr.files {
		dir, ok := f.dir, false
		for ; dir != "."; dir = path.Dir(dir) {
			if ok = slices.Contains(rows, dir); ok {
				used[dir] = true
				break
			}
		}
		// Each package of the product has a row of its own.
		if own := within(f.dir, public...) || within(f.dir, "internal"); !ok || own && !within(f.dir, "internal/proof") && dir != f.dir {
			found = append(found, f.dir+" has no row")
		}
	}
	for _, row := range rows {
		if !used[row] {
			found = append(found, "the row of "+row+" names no folder with Go files")
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestArchitectureListsAllFolders(t *testing.T) {
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"docs", ".ci", "integration"} // no Go files, or another module
	for _, breach := range notListed(repository(t), string(text)) {
		if !slices.ContainsFunc(elsewhere, func(dir string) bool { return breach == "the row of "+dir+" names no folder with Go files" }) {
			t.Error(breach)
		}
	}
}

func TestArchitectureListsAllFoldersFails(t *testing.T) {
	tr := planted(t, map[string]string{
		"concurrency/a.go": "package concurrency", "concurrency/limithttp/b.go": "package limithttp",
		"internal/queue/c.go": "package queue", "examples/fleet/d.go": "package main", "compat/e.go": "package main",
	})
	got := notListed(tr, "| `concurrency` | x |\n| `internal/queue` | x |\n| `examples` | x |\n| `internal/nowhere` | x |\n")
	want := []string{"compat has no row", "concurrency/limithttp has no row", "the row of internal/nowhere names no folder with Go files"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
