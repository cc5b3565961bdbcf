package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
)

// runsAlone reports whether neither the code of a folder nor its tests start a goroutine, use a channel or import
// what goroutines share memory with: the race detector has nothing to see there.
func runsAlone(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil || !fileRunsAlone(file) {
			return false
		}
	}
	return true
}

func fileRunsAlone(file *ast.File) bool {
	alone := true
	for _, of := range file.Imports {
		switch name, _ := strconv.Unquote(of.Path.Value); name {
		case "sync", "sync/atomic", "context", "testing/synctest", "net/http", "os/exec", "os/signal":
			alone = false
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
			alone = false
		}
		return alone
	})
	return alone
}
