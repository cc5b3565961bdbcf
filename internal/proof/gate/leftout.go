package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// shortened is a test of which go test -short leaves out all or a part.
type shortened struct {
	dir, test string
	why       string // "" if only a part is left out
}

// String is the test and why it is left out, or that a part of it is.
func (s shortened) String() string {
	return fmt.Sprintf("%s.%s: %s", path.Base(s.dir), s.test, cmp.Or(s.why, "a part of it is left out by -short"))
}

// shortenedOf finds the tests of some folders that ask testing.Short.
func shortenedOf(dirs []string) (all []shortened, err error) {
	for _, dir := range dirs {
		of, err := shortenedIn(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// shortenedIn finds the tests of a folder that ask testing.Short, themselves or in a function of the folder that
// they call.
func shortenedIn(dir string) (all []shortened, err error) {
	funcs, err := functionsOf(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for i := 0; i < len(funcs); i++ {
		f := funcs[i]
		if !f.asks || found[f.name] {
			continue
		}
		found[f.name] = true
		if isTest := strings.HasPrefix(f.name, "Test"); isTest {
			all = append(all, shortened{dir, f.name, f.why})
			continue
		}
		for j, caller := range funcs {
			if !caller.asks && slices.Contains(caller.calls, f.name) {
				funcs[j].asks, funcs[j].why = true, f.why
				i = -1 // one of those before it may be one
			}
		}
	}
	slices.SortFunc(all, func(a, b shortened) int { return strings.Compare(a.test, b.test) })
	return all, nil
}

// function is one of a folder's tests or of what they call.
type function struct {
	name  string
	asks  bool     // testing.Short
	why   string   // with which reason it is skipped then, or ""
	lacks []string // with which reasons it is skipped where the machine lacks something
	calls []string
}

func functionsOf(dir string) ([]function, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	return functionsIn(files)
}

func functionsIn(files []string) (all []function, err error) {
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		known, ok := parsed.Load(string(source))
		if !ok {
			if known, err = functionsFrom(name, source); err != nil {
				return nil, err
			}
			parsed.Store(string(source), known)
		}
		all = append(all, known.([]function)...) //nolint:forcetypeassert // there is nothing else in it
	}
	return all, nil
}

// parsed has the functions of the files that were parsed, by their text: each is asked for several times.
var parsed sync.Map

func functionsFrom(name string, source []byte) (all []function, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f := function{name: fn.Name.Name, lacks: lacks(fn.Body), calls: callsOf(fn.Body)}
			f.asks, f.why = asksShort(fn.Body)
			all = append(all, f)
		}
	}
	return all, nil
}

// callsOf returns the names of the functions and methods that a function calls; those of another package also with its
// name before them.
func callsOf(body *ast.BlockStmt) (names []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch of := call.Fun.(type) {
			case *ast.Ident:
				names = append(names, of.Name)
			case *ast.SelectorExpr:
				names = append(names, of.Sel.Name)
				if x, ok := of.X.(*ast.Ident); ok {
					names = append(names, x.Name+"."+of.Sel.Name)
				}
			}
		}
		return true
	})
	return names
}

// asksShort reports whether a test asks testing.Short, and with which reason it is skipped then as a
// whole, or "" if only a part of it is.
func asksShort(body *ast.BlockStmt) (asks bool, why string) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		asks = asks || ok && selects(call, "testing", "Short")
		return true
	})
	for _, stmt := range body.List {
		branch, ok := stmt.(*ast.IfStmt)
		if !ok {
			continue
		}
		if call, ok := branch.Cond.(*ast.CallExpr); !ok || !selects(call, "testing", "Short") {
			continue
		}
		for _, stmt := range branch.Body.List {
			if skip, ok := stmt.(*ast.ExprStmt); ok {
				if call, ok := skip.X.(*ast.CallExpr); ok && selects(call, "", "Skip") && len(call.Args) == 1 {
					if text, ok := call.Args[0].(*ast.BasicLit); ok {
						why, _ = strconv.Unquote(text.Value)
					}
				}
			}
		}
	}
	return asks, why
}

// selects reports whether a call is x.name for one of some names, for any x if x is "".
func selects(call *ast.CallExpr, x string, names ...string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, sel.Sel.Name) {
		return false
	}
	of, ok := sel.X.(*ast.Ident)
	return x == "" || ok && of.Name == x
}

// printLeftOut lists what each target of the gate does not run, which another one may: packages that it leaves
// out, tests that it runs with -short, and subjects that it tests only when they have changed. make verify runs
// all of them, in each target, but those that are skipped where the machine lacks something, which are last.
func printLeftOut(w io.Writer, all []pkg, whole map[string]subject) error {
	for _, target := range []string{"test", "race", "etcd37"} {
		run, out := choose(target, all)
		for _, l := range out {
			fmt.Fprintf(w, "%-8s %s: %s\n", target, l.path, l.why)
		}
		if target == "test" {
			continue // it runs without -short
		}
		if err := printShortened(w, target, run); err != nil {
			return err
		}
	}
	for _, module := range []string{"bench", "integration"} {
		of, err := foldersOf(module)
		if err != nil {
			return err
		}
		if err := printShortened(w, module, of); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(whole)) {
		of := whole[name]
		used := strings.Join(of.files, " nor ")
		if len(of.api) > 0 {
			used += " nor the exported declarations of " + strings.Join(of.api, ", ")
		}
		fmt.Fprintf(w, "%-8s %s (make %s), if neither %s has changed since they last passed\n", name, cmp.Or(of.tests, "all tests"), of.target, used)
	}
	dirs := paths(all)
	for _, module := range []string{"bench", "demos", "integration"} {
		of, err := foldersOf(module)
		if err != nil {
			return err
		}
		dirs = append(dirs, of...)
	}
	return printLacking(w, dirs)
}

func printShortened(w io.Writer, target string, dirs []string) error {
	all, err := shortenedOf(dirs)
	for _, t := range all {
		fmt.Fprintf(w, "%-8s %s\n", target, t)
	}
	return err
}

// printParts lists the tests of some folders of which -short leaves out a part. A test that is skipped as a
// whole is listed when it has run.
func printParts(w io.Writer, dirs []string) error {
	all, err := shortenedOf(dirs)
	for _, t := range all {
		if t.why == "" {
			fmt.Fprintln(w, "SKIP", t)
		}
	}
	return err
}

// foldersOf returns a folder and those below it, without hidden ones.
func foldersOf(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if name != root && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			dirs = append(dirs, name)
		}
		return err
	})
	return dirs, err
}
