package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A test skips itself, or a part of itself, where the machine lacks what it asks for: a tool, a variable, or what a
// command needs, such as a network. Such tests are read from the source, as those that ask testing.Short.

// lackingOf returns the tests of some folders that are skipped where something is missing, by the reasons that they
// give. helpers are the functions of other folders that skip their caller so.
func lackingOf(dirs []string, helpers map[string][]string) (map[string][]string, error) {
	tests := map[string][]string{}
	for _, dir := range dirs {
		funcs, err := functionsOf(dir)
		if err != nil {
			return nil, err
		}
		for name, whys := range reasons(funcs, helpers) {
			for _, why := range whys {
				if strings.HasPrefix(name, "Test") {
					tests[why] = append(tests[why], filepath.Base(dir)+"."+name)
				}
			}
		}
	}
	for _, of := range tests {
		slices.Sort(of)
	}
	return tests, nil
}

// helpersOf returns the reasons of the functions in the files of some folders that import testing and are no tests, by
// the names by which tests call them.
func helpersOf(dirs []string) (map[string][]string, error) {
	all := map[string][]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		funcs, err := functionsIn(slices.DeleteFunc(files, func(name string) bool {
			return strings.HasSuffix(name, "_test.go") || !importsTesting(name)
		}))
		if err != nil {
			return nil, err
		}
		for name, whys := range reasons(funcs, nil) {
			all[filepath.Base(dir)+"."+name] = whys
		}
	}
	return all, nil
}

func importsTesting(name string) bool {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	return err == nil && slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing"` })
}

// reasons returns why each of a folder's functions may skip its test: its own reasons, and those of the functions that
// it calls.
func reasons(funcs []function, helpers map[string][]string) map[string][]string {
	all := map[string][]string{}
	for again := true; again; {
		again = false
		for _, f := range funcs {
			whys := slices.Concat(all[f.name], f.lacks)
			for _, call := range f.calls {
				whys = slices.Concat(whys, all[call], helpers[call])
			}
			slices.Sort(whys)
			if whys = slices.Compact(whys); len(whys) > len(all[f.name]) {
				all[f.name], again = whys, true
			}
		}
	}
	return all
}

// lacks returns the reasons for which a function skips its test, if it asks for a tool or a variable, or runs a command.
// What only -short, an external cluster or another system skips is left out.
func lacks(body *ast.BlockStmt) (whys []string) {
	asks := false
	elsewhere := func(x ast.Expr) bool {
		return about(x, "Short", "External", "ErrExternal", "externalEndpoints", "EMBEDTEST_ENDPOINTS", "ErrUnsupported", "GOOS", "CanPause")
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			return !elsewhere(n.Cond)
		case *ast.CaseClause:
			return !slices.ContainsFunc(n.List, elsewhere)
		case *ast.CallExpr:
			asks = asks || selects(n, "exec", "LookPath", "Command", "CommandContext") || selects(n, "os", "Getenv", "LookupEnv")
			if selects(n, "", "Skip", "Skipf") && len(n.Args) > 0 {
				asks = asks || len(n.Args) > 1 // it says what another function has found
				if why := words(n.Args[0]); why != "" {
					whys = append(whys, why)
				}
			}
		}
		return true
	})
	if !asks {
		return nil
	}
	return whys
}

// words returns what a reason says whatever the test has found: its text until the first verb of the format.
func words(reason ast.Expr) string {
	text, ok := reason.(*ast.BasicLit)
	if !ok {
		return ""
	}
	why, _ := strconv.Unquote(text.Value)
	why, _, _ = strings.Cut(why, "%")
	return strings.TrimRight(why, ": ")
}

// about reports whether an expression has one of some names or texts.
func about(x ast.Expr, names ...string) (found bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			found = found || slices.Contains(names, n.Name)
		case *ast.BasicLit:
			found = found || slices.Contains(names, strings.Trim(n.Value, `"`))
		}
		return !found
	})
	return found
}

// printLacking lists the tests of some folders that are skipped where the machine lacks something.
func printLacking(w io.Writer, dirs []string) error {
	here, err := foldersOf(".")
	if err != nil {
		return err
	}
	helpers, err := helpersOf(here)
	if err != nil {
		return err
	}
	tests, err := lackingOf(dirs, helpers)
	for _, why := range slices.Sorted(maps.Keys(tests)) {
		fmt.Fprintf(w, "%-8s %s: %s\n", "if", why, strings.Join(tests[why], ", "))
	}
	return err
}
