package deptest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxLines is the most that a file which is no test may hold: one idea fits.
const maxLines = 400

// maxFunction is the most that a function of the product may hold, in lines. One that needs
// more says why in its comment, beginning with longReason.
const (
	maxFunction = 60
	longReason  = "It is long because "
)

// vague are package names that say nothing about what is inside.
var vague = []string{"util", "utils", "common", "types"}

func sizeBreaches(tr *tree) []string {
	var found []string
	for _, f := range tr.files {
		if !strings.HasSuffix(f.path, "_test.go") && f.lines > maxLines {
			found = append(found, fmt.Sprintf("%s has %d lines, more than %d: it holds more than one idea", f.path, f.lines, maxLines))
		}
		if slices.Contains(vague, f.pkg()) || slices.Contains(vague, path.Base(f.dir)) {
			found = append(found, fmt.Sprintf("%s: the package's name does not say what it is for", f.path))
		}
	}
	return found
}

// longFunctions reports the functions of the product that are too long without a reason.
func longFunctions(tr *tree) (found []string) {
	for _, f := range tr.files {
		if !f.product() || within(f.dir, "idempotency/conformance", "idempotency/idemtest") {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := tr.fset.Position(fn.End()).Line - tr.fset.Position(fn.Pos()).Line + 1
			if lines > maxFunction && !strings.Contains(fn.Doc.Text(), longReason) {
				found = append(found, fmt.Sprintf("%s: %s has %d lines, more than %d", f.path, fn.Name.Name, lines, maxFunction))
			}
		}
	}
	return found
}

func TestSize(t *testing.T) {
	for _, breach := range longFunctions(repository(t)) {
		t.Error(breach)
	}
	for _, breach := range sizeBreaches(repository(t)) {
		t.Error(breach)
	}
}

func TestSizeFails(t *testing.T) {
	long := strings.Repeat("//\n", maxLines)
	tr := planted(t, map[string]string{
		"concurrency/long.go":      long + "package concurrency\n",
		"concurrency/long_test.go": long + "package concurrency\n",
		"concurrency/short.go":     "package concurrency\n",
		"internal/util/x.go":       "package util\n",
		"internal/names/y.go":      "package common\n",
	})
	if got := sizeBreaches(tr); len(got) != 3 {
		t.Errorf("breaches %q, want the long file and the two vague names", got)
	}
}

func TestLongFunctionsFail(t *testing.T) {
	body := "{\n" + strings.Repeat("x()\n", maxFunction-2) + "}\n"
	long := "{\nx()\n" + strings.TrimPrefix(body, "{\n")
	tr := planted(t, map[string]string{
		"concurrency/a.go":                   "package concurrency\nfunc short() " + body + "func long() " + long + "// " + longReason + "it is.\nfunc reasoned() " + long,
		"concurrency/a_test.go":              "package concurrency\nfunc test() " + long,
		"idempotency/conformance/promise.go": "package conformance\nfunc promise() " + long,
		"internal/proof/chaos/b.go":          "package chaos\nfunc proof() " + long,
		"examples/fleet/main.go":             "package main\nfunc example() " + long,
		"console/c.go":                       "package console\nfunc page() " + long,
		"cmd/etcdkit/main.go":                "package main\nfunc command() " + long,
		"cmd/etcdkit/internal/cli/d.go":      "package cli\nfunc verb() " + long,
	})
	var names []string
	for _, breach := range longFunctions(tr) {
		name, ok := strings.CutSuffix(breach, " has 61 lines, more than 60")
		_, name, _ = strings.Cut(name, ": ")
		if !ok {
			t.Error(breach)
		}
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"command", "long", "page", "verb"}) {
		t.Errorf("breaches %q, want the long functions of the product", names)
	}
}
