package deptest

import (
	"bytes"
	"fmt"
	"go/ast"
	goimporter "go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxPairs and maxAgainst bound what the files of package concurrency use of each other
// (docs/design/0058-files-of-a-package.md): a reader of one file has to open those that it uses.
const (
	maxPairs   = 100
	maxAgainst = 2
)

// maxCircle is for how many files that use each other in a circle the best order is looked for.
const maxCircle = 16

// pairs are the pairs of files of which the first uses a function, method, type, variable or constant that the second
// declares for the package. A field counts with its type.
type pairs map[[2]string]bool

// pairsOf returns the pairs of files of a package.
func pairsOf(fset *token.FileSet, files []*ast.File, compiled types.Importer) (pairs, error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: compiled}).Check("p", fset, files, info)
	if err != nil {
		return nil, err
	}
	name := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	all := pairs{}
	for id, object := range info.Uses {
		fn, isFunc := object.(*types.Func) // a method is in no scope
		if object.Pkg() != pkg || !isFunc && object.Parent() != pkg.Scope() {
			continue
		}
		if isFunc {
			object = fn.Origin()
		}
		if from, to := name(id.Pos()), name(object.Pos()); from != to {
			all[[2]string{from, to}] = true
		}
	}
	return all, nil
}

// reach returns the files that a file uses, and those that these use, and so on.
func (p pairs) reach(from string) map[string]bool {
	found := map[string]bool{}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		for pair := range p {
			if pair[0] == next[0] && !found[pair[1]] {
				found[pair[1]] = true
				next = append(next, pair[1])
			}
		}
	}
	return found
}

// circles returns the sets of files that use each other, directly or through others.
func (p pairs) circles() (all [][]string) {
	reach := map[string]map[string]bool{}
	for pair := range p {
		reach[pair[0]] = p.reach(pair[0])
	}
	seen := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(reach)) {
		if seen[file] || !reach[file][file] {
			continue
		}
		var circle []string
		for _, other := range slices.Sorted(maps.Keys(reach[file])) {
			if reach[other][file] {
				circle, seen[other] = append(circle, other), true
			}
		}
		all = append(all, circle)
	}
	return all
}

// against returns how many pairs of a circle point back in that order of its files in which fewest do.
func (p pairs) against(circle []string) int {
	fewest := make([]int, 1<<len(circle)) // of each set of files, the first ones of an order
	for set := 1; set < len(fewest); set++ {
		fewest[set] = len(p)
		for last, file := range circle {
			if set&(1<<last) == 0 {
				continue
			}
			before := set &^ (1 << last)
			back := fewest[before]
			for i, other := range circle {
				if before&(1<<i) != 0 && p[[2]string{file, other}] {
					back++
				}
			}
			fewest[set] = min(fewest[set], back)
		}
	}
	return fewest[len(fewest)-1]
}

// pairBreaches compares the pairs of a package with the bounds.
func pairBreaches(all pairs, most, mostAgainst int) (found []string) {
	if len(all) > most {
		found = append(found, fmt.Sprintf("%d pairs of files of which one uses the other, more than %d: put what is used together into one file, or into a package of its own", len(all), most))
	}
	against, circles := 0, all.circles()
	for _, circle := range circles {
		if len(circle) > maxCircle {
			found = append(found, fmt.Sprintf("%d files use each other in a circle: %s", len(circle), strings.Join(circle, ", ")))
			continue
		}
		against += all.against(circle)
	}
	if against > mostAgainst {
		found = append(found, fmt.Sprintf("%d pairs of files are against every order of the files, more than %d, in these circles: %q", against, mostAgainst, circles))
	}
	return found
}

// compiledImports returns the compiled form of what a package imports, by import path, and the names of its files.
func compiledImports(t *testing.T, dir string) (compiled map[string]string, files []string) {
	t.Helper()
	list := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list"}, args...), "./"+dir)...)
		cmd.Dir = "../../.."
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("list what %s imports: %v\n%s", dir, err, stderr.String())
		}
		return out
	}
	compiled = map[string]string{}
	for line := range bytes.Lines(list("-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}")) {
		path, file, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		compiled[path] = file
	}
	return compiled, strings.Fields(string(list("-f", `{{join .GoFiles "\n"}}`)))
}

// A551: what the files of package concurrency use of each other stays within bounds.
func TestPairsOfFiles(t *testing.T) {
	t.Parallel()
	const dir = "concurrency"
	compiled, names := compiledImports(t, dir)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, filepath.Join("../../..", dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	all, err := pairsOf(fset, files, goimporter.ForCompiler(fset, "gc", open))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < len(files) {
		t.Errorf("only %d pairs of %d files were found", len(all), len(files))
	}
	t.Logf("%d pairs of %d files; circles: %q", len(all), len(files), all.circles())
	for _, breach := range pairBreaches(all, maxPairs, maxAgainst) {
		t.Errorf("%s: %s", dir, breach)
	}
}

// TestPairsOfFilesFail shows that files that use each other too much are found out.
func TestPairsOfFilesFail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sources map[string]string
		pairs   string
		most    int
		against int
		want    string // of the one breach, or none
	}{
		"in order": {map[string]string{"a.go": "func a() { b(); c() }", "b.go": "func b() { c() }", "c.go": "func c() {}"}, "a>b a>c b>c", 3, 0, ""},
		"one more": {map[string]string{"a.go": "func a() { b(); c() }", "b.go": "func b() { c() }", "c.go": "func c() {}"}, "a>b a>c b>c", 2, 0, "3 pairs of files of which one uses the other, more than 2"},
		"of each kind": {map[string]string{
			"a.go": "func a(x T[int]) { x.m(); _ = v; _ = k; _ = x.f; local := 1; _ = local }", "b.go": "type T[E any] struct { f E }",
			"c.go": "func (T[E]) m() {}", "d.go": "var v int", "e.go": "const k = 1",
		}, "a>b a>c a>d a>e c>b", 9, 0, ""},
		"a field has no file": {map[string]string{"a.go": "func a() { _ = x().f }", "b.go": "type T struct { f int }", "c.go": "func x() (t T) { return t }"}, "a>c c>b", 9, 0, ""},
		"twice is once":       {map[string]string{"a.go": "func a() { b(); b() }", "b.go": "func b() {}"}, "a>b", 1, 0, ""},
		"each other":          {map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { a() }"}, "a>b b>a", 9, 0, `1 pairs of files are against every order of the files, more than 0, in these circles: [["a.go" "b.go"]]`},
		"as far as allowed":   {map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { a() }"}, "a>b b>a", 9, 1, ""},
		"two circles": {map[string]string{
			"a.go": "func a() { b(); c() }", "b.go": "func b() { c() }", "c.go": "func c() { a(); d() }",
			"d.go": "func d() { e() }", "e.go": "func e() { d() }",
		}, "a>b a>c b>c c>a c>d d>e e>d", 9, 1, "2 pairs of files are against every order"},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			var files []*ast.File
			for _, file := range slices.Sorted(maps.Keys(tt.sources)) {
				parsed, err := parser.ParseFile(fset, file, "package p\n"+tt.sources[file]+"\n", parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, parsed)
			}
			all, err := pairsOf(fset, files, nil)
			if err != nil {
				t.Fatal(err)
			}
			var is []string
			for pair := range all {
				is = append(is, strings.ReplaceAll(pair[0]+">"+pair[1], ".go", ""))
			}
			if slices.Sort(is); strings.Join(is, " ") != tt.pairs {
				t.Errorf("pairs %q, want %q", is, tt.pairs)
			}
			got := pairBreaches(all, tt.most, tt.against)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("breaches %q, want %q", got, tt.want)
			}
		})
	}

	all, want := pairs{}, fmt.Sprint(maxCircle+1)+" files use each other in a circle"
	for i := range maxCircle + 1 {
		all[[2]string{fmt.Sprint(i), fmt.Sprint((i + 1) % (maxCircle + 1))}] = true
	}
	if got := pairBreaches(all, 99, 99); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("breaches %q, want %q", got, want)
	}
}
