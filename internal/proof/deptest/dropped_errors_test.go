package deptest

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// uses reports whether a node reads the variable err. What an assignment assigns to is no use of it.
func uses(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, value := range n.Rhs {
				found = found || uses(value)
			}
			return false
		case *ast.SelectorExpr:
			found = found || uses(n.X)
			return false
		case *ast.Ident:
			found = found || n.Name == "err"
		}
		return !found
	})
	return found
}

// assigns reports whether a statement assigns to the variable err.
func assigns(s ast.Stmt) bool {
	a, ok := s.(*ast.AssignStmt)
	return ok && slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && id.Name == "err"
	})
}

// likeGo matches what Go has and other text in code blocks has not.
var likeGo = regexp.MustCompile(`:= |(?m)^\s*func |err != nil`)

// parsed parses a program, declarations or statements. What a page leaves out, …, is an identifier.
func parsed(fset *token.FileSet, text string) (file *ast.File, err error) {
	text = strings.ReplaceAll(text, "…", "_")
	for _, whole := range []string{text, "package p; " + text, "package p; func _() { " + text + "\n}"} {
		if file, err = parser.ParseFile(fset, "", whole, 0); err == nil {
			break
		}
	}
	return file, err
}

// droppedErrors returns what of a program or a fragment of Go a reader must not copy: an err that the next statement does not
// look at, a session or a client of etcd that is opened without a bound of its own, and what is like Go and no Go. Other text has none.
func droppedErrors(text string) (found []string) {
	fset := token.NewFileSet()
	file, err := parsed(fset, text)
	if err != nil {
		if likeGo.MatchString(text) {
			return []string{"it is like Go, and does not parse: " + err.Error()}
		}
		return nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			for i, s := range n.List {
				if assigns(s) && i+1 < len(n.List) && !uses(n.List[i+1]) {
					found = append(found, fmt.Sprintf("line %d: the next statement does not look at err", fset.Position(s.Pos()).Line))
				}
			}
		case *ast.CallExpr:
			of, ok := n.Fun.(*ast.SelectorExpr)
			if ctx, plain := slices.Concat(n.Args, []ast.Expr{nil})[0].(*ast.Ident); ok && of.Sel.Name == "NewSession" && plain && ctx.Name == "ctx" {
				found = append(found, fmt.Sprintf("line %d: NewSession waits for etcd as long as ctx: give it one with a deadline, such as opening", fset.Position(n.Pos()).Line))
			}
			if ok && of.Sel.Name == "New" && unbounded(n.Args) {
				found = append(found, fmt.Sprintf("line %d: clientv3.New with a user waits for etcd without an end: give it a DialTimeout", fset.Position(n.Pos()).Line))
			}
		}
		return true
	})
	return found
}

// unbounded reports whether the arguments of a call are a clientv3.Config without a DialTimeout.
func unbounded(args []ast.Expr) bool {
	if len(args) != 1 {
		return false
	}
	lit, ok := args[0].(*ast.CompositeLit)
	if !ok {
		return false
	}
	of, ok := lit.Type.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "Config" && !slices.ContainsFunc(lit.Elts, func(e ast.Expr) bool {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		name, ok := kv.Key.(*ast.Ident)
		return ok && name.Name == "DialTimeout"
	})
}

// codeIn returns the code of a doc comment.
func codeIn(doc string) (all []string) {
	var p comment.Parser
	for _, block := range p.Parse(doc).Content {
		if code, ok := block.(*comment.Code); ok {
			all = append(all, code.Text)
		}
	}
	return all
}

// copiedErrors returns the breaches in what users copy: the Go code of pages, and that of the comments of packages.
func copiedErrors(pages map[string]string, tr *tree) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, b := range pagecode.Parse(pages[name]).Blocks {
			if b.Lang == "go" {
				for _, breach := range droppedErrors(b.Text) {
					found = append(found, fmt.Sprintf("%s:%d: %s", name, b.Line, breach))
				}
			}
		}
	}
	for _, f := range tr.files {
		for _, group := range f.ast.Comments {
			for _, code := range codeIn(group.Text()) {
				for _, breach := range droppedErrors(code) {
					found = append(found, tr.fset.Position(group.Pos()).String()+": in its code, "+breach)
				}
			}
		}
	}
	return found
}

// A425: a snippet whose error is dropped compiles, and fails in silence where it is copied: a Codec that could not be made was
// none, and payments were stored in the clear.
func TestCopiedCodeLooksAtErrors(t *testing.T) {
	for _, breach := range copiedErrors(pages(t), repository(t)) {
		t.Error(breach)
	}
	for text, want := range map[string]int{
		"a, err := f()\nb, err := g(a)\nif err != nil {}":                 1,
		"a, err := f()\nuse(a)":                                           1,
		"if err = f(); err != nil {}\nerr = g(err)\nreturn err":           0,
		"a, err := f()\nif err != nil {}\nb, err := g(a)":                 0, // the last statement is the reader's to continue
		"func f() error {\n\tx, err := g()\n\ts.err = 1\n\treturn err\n}": 1,
		"s, err := concurrency.NewSession(ctx, c, \"a\", nil)":            1,
		"s, err := concurrency.NewSession(opening, c, \"a\", nil)":        0,
		"c, err := clientv3.New(clientv3.Config{Endpoints: all})":         1,
		"c, err := clientv3.New(clientv3.Config{DialTimeout: d})":         0,
		"$ etcdctl get err": 0,
		"package main\n\nimport \"a\"\n\nfunc main() {\n\tx, err := a.F()\n\tuse(x)\n}": 1, // a whole program
		"func f() {\n\tx, err := g(…)\n\tuse(x)\n\t…\n}":                                1, // with something left out
		"x, err := g(a b)": 1, // no Go
	} {
		if got := droppedErrors(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
	tr := planted(t, map[string]string{"a/a.go": "// Package a is:\n//\n//\tx, err := f()\n//\tuse(x)\npackage a\n"})
	page := map[string]string{"a.md": strings.Repeat("```go\nx, err := f()\nuse(x)\n```\n", 2) + "```java\nx, err := f()\n```\n"}
	if got := copiedErrors(page, tr); len(got) != 3 {
		t.Errorf("%q, want two of the page and one of the comment", got)
	}
}
