package deptest

import (
	"cmp"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// folderRow is a row of one of ARCHITECTURE.md's tables of folders. That of a package of the
// product has a third column: the packages of ours that it imports.
var folderRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\|(?: ([^|]+) \\|)?$")

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
		if own := within(f.dir, public...) || within(f.dir, "internal"); !ok || own && !within(f.dir, testOnly...) && dir != f.dir {
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

// wrongImports reports the rows whose third column is not what the package imports of ours,
// by the last part of each path, in the order of the paths.
func wrongImports(tr *tree, text string) (found []string) {
	for _, row := range folderRow.FindAllStringSubmatch(text, -1) {
		var paths []string
		for _, f := range tr.files {
			if f.dir != row[1] || f.test {
				continue
			}
			for _, spec := range f.ast.Imports {
				if p, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(p, module+"/") {
					paths = append(paths, p)
				}
			}
		}
		slices.Sort(paths)
		var names []string
		for _, p := range slices.Compact(paths) {
			names = append(names, "`"+path.Base(p)+"`")
		}
		imports := cmp.Or(strings.Join(names, ", "), "–")
		product := within(row[1], append([]string{"internal"}, public...)...) && !within(row[1], testOnly...)
		if product && row[2] != imports {
			found = append(found, row[1]+" imports "+imports+", and its row says "+cmp.Or(row[2], "nothing of it"))
		}
	}
	return found
}

func TestArchitectureListsAllFolders(t *testing.T) {
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"docs", ".ci", "integration", "bench", "demos"} // no Go files, or another module
	for _, breach := range notListed(repository(t), string(text)) {
		if !slices.ContainsFunc(elsewhere, func(dir string) bool { return breach == "the row of "+dir+" names no folder with Go files" }) {
			t.Error(breach)
		}
	}
	for _, breach := range wrongImports(repository(t), string(text)) {
		t.Error(breach)
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

func TestArchitectureImportsFails(t *testing.T) {
	tr := planted(t, map[string]string{
		"concurrency/a.go":      "package concurrency\nimport (\n\"fmt\"\n\"" + module + "/internal/queue\"\n\"" + module + "/internal/lease\"\n)",
		"concurrency/a_test.go": "package concurrency\nimport \"" + module + "/embedtest\"",
		"internal/queue/c.go":   "package queue", "internal/lease/d.go": "package lease",
	})
	got := wrongImports(tr, "| `concurrency` | x | `lease`, `queue` |\n| `internal/queue` | x | `lease` |\n| `internal/lease` | x |\n| `examples` | x |\n")
	want := []string{"internal/queue imports –, and its row says `lease`", "internal/lease imports –, and its row says nothing of it"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
