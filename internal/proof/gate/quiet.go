package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// asksNoEtcd reports whether the tests of a folder, whose binary has these deps, can see no difference between two
// versions of etcd: the binary has no server, real or fake, and neither the tests nor the code names a package of
// etcd. The command's verbs may name some in their code: the tests of cli execute that on an etcd.
func asksNoEtcd(dir, deps string) bool {
	for dep := range strings.FieldsSeq(deps) {
		switch dep {
		case server, ours + "/embedtest/etcdfake", ours + "/internal/proof/impostor":
			return false
		}
	}
	pattern := "*.go"
	if under(dir, "./cmd/etcdkit/internal/cli") {
		pattern = "*_test.go"
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, name := range files {
		if namesEtcd(name) {
			return false
		}
	}
	return true
}

// asksThrough reports whether the code of a folder, its tests apart, names no package of etcd but one of those through
// which services use it: what another etcd changes for it, it changes for their own tests.
func asksThrough(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false
	}
	through := false
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if namesEtcd(name) {
			return false
		}
		through = through || imports(name, ours+"/concurrency", ours+"/schedlock", ours+"/idempotency", ours+"/observe")
	}
	return through
}

// imports reports whether a file imports one of some packages.
func imports(name string, packages ...string) bool {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	return err == nil && slices.ContainsFunc(file.Imports, func(of *ast.ImportSpec) bool {
		imported, _ := strconv.Unquote(of.Path.Value)
		return slices.Contains(packages, imported)
	})
}

// server is the package of etcd that starts one.
const server = "go.etcd.io/etcd/server/v3/embed"

// namesEtcd reports whether a file imports a package of etcd, or cannot be read.
func namesEtcd(name string) bool {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return true
	}
	for _, of := range file.Imports {
		if imported, _ := strconv.Unquote(of.Path.Value); strings.HasPrefix(imported, "go.etcd.io/") {
			return true
		}
	}
	return false
}
