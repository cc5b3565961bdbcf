package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every mutant fits the product as it is, and what it makes compiles: neither a package that has all of its mutants, nor one with a
// mutant that is built alone, has an error of types, or a variable or an import that is not used.
func TestMutantsFit(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles what the mutants change, and starts nothing")
	}
	t.Parallel()
	all := everyMutant(t)
	c := newChecker(exports(t, all))
	overlay, alone, err := Together(all, "../../..", t.TempDir())
	require.NoError(t, err)
	c.checkOverlay(t, overlay)
	for _, m := range all {
		if slices.Contains(alone, m.Name) {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				overlay, err := m.Overlay("../../..", t.TempDir())
				require.NoError(t, err)
				c.checkOverlay(t, overlay)
			})
		}
	}
}

// checkOverlay checks the packages of which an overlay has a file.
func (c *checker) checkOverlay(t *testing.T, overlay string) {
	t.Helper()
	b, err := os.ReadFile(overlay)
	require.NoError(t, err)
	var o struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(b, &o))
	require.NotEmpty(t, o.Replace)
	dirs := map[string]bool{}
	for was := range o.Replace {
		dirs[filepath.Dir(was)] = true
	}
	for dir := range dirs {
		require.NoError(t, c.check(dir, o.Replace))
	}
}

// checker checks the types of mutated packages. What the mutants of a package share is read once.
type checker struct {
	fset *token.FileSet

	mu       sync.Mutex
	compiled types.Importer
	parsed   map[string]*ast.File // files as they are, by path
}

func newChecker(compiled map[string]string) *checker {
	fset := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	return &checker{fset: fset, compiled: importer.ForCompiler(fset, "gc", open), parsed: map[string]*ast.File{}}
}

// Import is that of types.Importer, for several checks at once.
func (c *checker) Import(path string) (*types.Package, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compiled.Import(path)
}

// file parses a file of the tree, once.
func (c *checker) file(name string) (*ast.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if file := c.parsed[name]; file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
	if err == nil {
		c.parsed[name] = file
	}
	return file, err
}

// check checks the types of the package in dir, of whose files some are replaced.
func (c *checker) check(dir string, replace map[string]string) error {
	names, err := sources(dir)
	if err != nil {
		return err
	}
	for name := range replace {
		if base := filepath.Base(name); filepath.Dir(name) == dir && !slices.Contains(names, base) {
			names = append(names, base) // the overlay adds it
		}
	}
	var files []*ast.File
	for _, name := range names {
		name = filepath.Join(dir, name)
		var file *ast.File
		if with := replace[name]; with != "" {
			file, err = parser.ParseFile(c.fset, with, nil, parser.SkipObjectResolution)
		} else {
			file, err = c.file(name)
		}
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var errs []error
	conf := types.Config{Importer: c, Error: func(err error) { errs = append(errs, err) }}
	_, _ = conf.Check(dir, c.fset, files, nil) // its error is the first of errs
	return errors.Join(errs...)
}

// exports returns the compiled form of all that the packages of the mutants import.
func exports(t *testing.T, all []Mutant) map[string]string {
	t.Helper()
	pkgs := map[string]bool{}
	for _, m := range all {
		for _, e := range m.edits {
			pkgs["./"+e.pkg] = true
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}, slices.Sorted(maps.Keys(pkgs))...)...)
	cmd.Dir = "../../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	compiled := map[string]string{}
	for line := range bytes.Lines(out) {
		path, file, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		compiled[string(path)] = string(file)
	}
	return compiled
}

const before = `package p

import "fmt"

// renew has a comment: if !sent.Before(deadline) { return }
func (l *Lease) renew(sent, deadline T) {
	if !sent.Before( // in the middle
		deadline,
	) {
		return
	}
	l.sent(1)
	fmt.Println("l.sent(1)")
	/* twice */ twice(); twice()
}

func (l Lease) open() bool { return l.n < 1 }

func (c *cache[K, V]) get(k K) V { return c.m[k] }

func (c set[K]) has(k K) bool { return c[k] }

func open() bool { return true }

type (
	Lease struct{ n int }
	other struct{ n int }
)

const (
	few  = 1
	many = 100
)

var list = []string{
	"one",
	"two",
}
`

// beside is another file of the package, which declares what is asked for.
const beside = `package p

func (l *Lease) close() {}
`

func TestMatches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, find, put string
		was, is       string // in the text of the file, or
		fails         string
	}{
		"once":                   {in: "(*Lease).renew", find: "l.sent(1)", put: "l.sent(2)", was: "\tl.sent(1)\n", is: "\t l.sent(2) \n"},
		"nothing instead":        {in: "(*Lease).renew", find: "l.sent(1)", was: "\tl.sent(1)\n", is: "\t  \n"},
		"across lines":           {in: "(*Lease).renew", find: "if !sent.Before(deadline) { return }", put: "l.x()", was: "if !sent.Before( // in the middle\n\t\tdeadline,\n\t) {\n\t\treturn\n\t}", is: " l.x() /*line :11:3*/"},
		"lines of its own":       {in: "(*Lease).renew", find: "l.\n\tsent(\n\t1,\n\t)", put: "a()\nb()", was: "\tl.sent(1)\n", is: "\t a()\nb() /*line :12:11*/\n"},
		"two statements":         {in: "(*Lease).renew", find: "l.sent(1); fmt", put: "_ = l; fmt", was: "l.sent(1)\n\tfmt", is: " _ = l; fmt /*line :13:5*/"},
		"comments of its own":    {in: "(*Lease).renew", find: "l.sent(1) // no more", put: "// so\nl.sent(2) // instead", was: "\tl.sent(1)\n", is: "\t l.sent(2) \n"},
		"middle of a statement":  {in: "(*Lease).renew", find: ") { return", put: ") { l.x(); return", was: ") {\n\t\treturn", is: " ) { l.x(); return /*line :10:9*/"},
		"part of a word":         {in: "(*Lease).renew", find: "twic", fails: "0 matches"},
		"text in a string":       {in: "(*Lease).renew", find: "sent(1)", put: "sent(2)", was: "\tl.sent(1)\n", is: "\tl. sent(2) \n"},
		"absent":                 {in: "(*Lease).renew", find: "l.sent(3)", fails: "x, (*Lease).renew: 0 matches"},
		"in a comment":           {in: "(*Lease).renew", find: "return }", put: "panic(1) }", was: "\t\treturn\n\t}", is: "\t\t panic(1) } /*line :11:3*/"},
		"twice":                  {in: "(*Lease).renew", find: "twice()", fails: "x, (*Lease).renew: 2 matches"},
		"twice, overlapping":     {in: "(*Lease).renew", find: ")", fails: " matches"},
		"elsewhere":              {in: "(*Lease).renew", find: "return true", fails: "0 matches"},
		"method by short name":   {in: "Lease.renew", find: "l.sent(1)", put: "", was: "\tl.sent(1)\n", is: "\t  \n"},
		"method on a value":      {in: "Lease.open", find: "<", put: "<=", was: "n < 1", is: "n  <=  1"},
		"function of that name":  {in: "open", find: "true", put: "false", was: "return true", is: "return  false "},
		"generic receiver":       {in: "(*cache[K, V]).get", find: "c.m[k]", put: "c.m[k]+1", was: "c.m[k]", is: " c.m[k]+1 "},
		"generic, without names": {in: "(*cache).get", find: "c.m[k]", put: "c.m[k]+1", was: "c.m[k]", is: " c.m[k]+1 "},
		"generic, one parameter": {in: "set[T].has", find: "c[k]", put: "!c[k]", was: "return c[k]", is: "return  !c[k] "},
		"type of a group":        {in: "Lease", find: "n int", put: "n int64", was: "Lease struct{ n int }", is: "Lease struct{  n int64  }"},
		"constant of a group":    {in: "many", find: "100", put: "1", was: "many = 100", is: "many =  1 "},
		"variable":               {in: "list", find: `"one", "two"`, put: `"one"`, was: "\"one\",\n\t\"two\",", is: " \"one\" /*line :37:7*/,"},
		"other file":             {in: "(*Lease).close", find: "{}", put: "{ l.n++ }", was: "{}", is: " { l.n++ } "},
		"no such method":         {in: "(*Lease).reopen", find: "x", fails: "x, (*Lease).reopen: the package has no such declaration in its 2 files"},
		"no such function":       {in: "renew", find: "l.sent(1)", fails: "no such declaration"},
		"the same again":         {in: "open", find: "return true", put: "return /* so */ true", fails: "the same ones in Put"},
		"only a comment":         {in: "open", find: "// nothing", put: "x", fails: "no token in Find"},
		"no Go":                  {in: "open", find: "'", put: "x", fails: "read Find: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := planted(t)
			got, err := Mutant{edits: []edit{{"x", c.in, c.find, c.put}}}.apply(root)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.Len(t, got, 1)
			for path, after := range got {
				was, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, 1, bytes.Count(was, []byte(c.was)), "the case itself")
				require.Equal(t, string(bytes.Replace(was, []byte(c.was), []byte(c.is), 1)), string(after))
				_, err = parser.ParseFile(token.NewFileSet(), "", after, 0)
				require.NoError(t, err)
			}
		})
	}
}

// planted makes a tree with a package x of two files, and a test and a file for another
// system, which do not count.
func planted(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "x")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, text := range map[string]string{
		"p.go": before, "q.go": beside, "p_test.go": before, "q_plan9.go": beside, "r.go": "//go:build never\n\n" + before,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return root
}

func TestEditsOfOneFile(t *testing.T) {
	t.Parallel()
	root := planted(t)
	many := edit{"x", "many", "100", "1"}
	got, err := Mutant{edits: []edit{many, {"x", "few", "1", "2"}, {"x", "Lease.close", "{}", "{ l.n++ }"}}}.apply(root)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Contains(t, string(got[filepath.Join(root, "x", "p.go")]), "few  =  2 \n\tmany =  1 \n")

	_, err = Mutant{edits: []edit{many, {"x", "many", "= 100", "= 2"}}}.apply(root)
	require.ErrorContains(t, err, "overlap")
	_, err = Mutant{edits: []edit{{"y", "many", "100", "1"}}}.apply(root)
	require.ErrorContains(t, err, "y, many: ")
}

// What follows an edit keeps its line, so that an error of the compiler is understood.
func TestLinesStay(t *testing.T) {
	t.Parallel()
	root := planted(t)
	for _, put := range []string{"", "a()", "a()\nb()\n\nc()"} {
		got, err := Mutant{edits: []edit{{"x", "(*Lease).renew", "if !sent.Before(deadline) { return }", put}}}.apply(root)
		require.NoError(t, err)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p.go", got[filepath.Join(root, "x", "p.go")], 0)
		require.NoError(t, err)
		found := declarations(file, "Lease.open")
		require.Len(t, found, 1)
		require.Equal(t, "p.go:17:1", fset.Position(found[0].Pos()).String(), put)
	}
}

// A mutant whose code does not compile is seen.
func TestCheckCanFail(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	name := filepath.Join(root, "p.go")
	require.NoError(t, os.WriteFile(name, []byte("package p\n\nfunc f() int { x := 1; return x }\n"), 0o600))
	for put, want := range map[string]string{"return 1": "declared and not used: x", "return y": "undefined: y"} {
		m := Mutant{Name: "m", edits: []edit{{".", "f", "return x", put}}}
		overlay, err := m.Overlay(root, t.TempDir())
		require.NoError(t, err)
		c := newChecker(nil)
		require.NoError(t, c.check(root, nil))
		require.ErrorContains(t, c.check(root, map[string]string{name: filepath.Join(filepath.Dir(overlay), "m-0.go")}), want)
	}
}
