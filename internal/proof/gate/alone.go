package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
)

// runsAlone reports whether neither the code of a folder nor its tests start a goroutine, use a channel, import
// what goroutines share memory with, or change a variable of the package: tests that run in parallel share nothing that
// changes there, and the race detector has nothing to see.
func runsAlone(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		return false
	}
	var files []*ast.File
	vars := map[string]bool{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return false
		}
		files = append(files, file)
		variablesOf(file, vars)
	}
	for _, file := range files {
		if !fileRunsAlone(file, vars) {
			return false
		}
	}
	return true
}

// variablesOf adds the names of the variables that a file declares for the package.
func variablesOf(file *ast.File, vars map[string]bool) {
	for _, decl := range file.Decls {
		of, ok := decl.(*ast.GenDecl)
		if !ok || of.Tok != token.VAR {
			continue
		}
		for _, spec := range of.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names { //nolint:forcetypeassert // it is one, by the token
				vars[name.Name] = name.Name != "_"
			}
		}
	}
}

func fileRunsAlone(file *ast.File, vars map[string]bool) bool {
	alone := true
	for _, of := range file.Imports {
		switch name, _ := strconv.Unquote(of.Path.Value); name {
		case "sync", "sync/atomic", "context", "testing/synctest", "net/http", "os/exec", "os/signal", "golang.org/x/sync/errgroup":
			alone = false
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr: // time.AfterFunc, iter.Pull
			alone = alone && n.Sel.Name != "AfterFunc" && n.Sel.Name != "Pull" && n.Sel.Name != "Pull2"
		case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
			alone = false
		}
		for _, changed := range changedBy(n) {
			alone = alone && !vars[rootOf(changed)]
		}
		return alone
	})
	return alone
}

// changedBy returns what a part of a function changes, or may change by its address.
func changedBy(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		if of, ok := n.Fun.(*ast.Ident); ok && (of.Name == "delete" || of.Name == "clear" || of.Name == "copy") {
			return n.Args[:1]
		}
	}
	return nil
}

// rootOf returns the name of the variable of which an expression is a part, or "".
func rootOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return rootOf(x.X)
	case *ast.IndexExpr:
		return rootOf(x.X)
	case *ast.SliceExpr:
		return rootOf(x.X)
	case *ast.StarExpr:
		return rootOf(x.X)
	case *ast.ParenExpr:
		return rootOf(x.X)
	}
	return ""
}
