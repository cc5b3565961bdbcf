package deptest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namesError is what the comment of a function that returns an error has to
// contain: the name of an error (ErrFull, *HeldError), or one of three phrases.
var namesError = regexp.MustCompile(`\bErr[A-Z]\w*|\b\w+Error\b|\breturns an error\b|\bnever fails\b|\balways nil\b`)

// contract collects what the doc comments of the public packages fail to say.
type contract struct {
	tr    *tree
	found []string
}

// contractBreaches lists the exported identifiers of the public packages, of the command, and of what is
// internal to them, that break the rules of CONTRIBUTING.md for comments.
func contractBreaches(tr *tree) []string {
	c := &contract{tr: tr}
	documented := map[string]bool{}
	for _, f := range tr.files {
		if f.test || !within(f.dir, public...) {
			continue
		}
		documented[f.dir] = documented[f.dir] || f.ast.Doc.Text() != ""
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				c.function(d)
			case *ast.GenDecl:
				c.declaration(d)
			}
		}
	}
	for dir, ok := range documented {
		if !ok {
			c.found = append(c.found, dir+": the package has no comment")
		}
	}
	slices.Sort(c.found)
	return c.found
}

func (c *contract) breach(at token.Pos, format string, args ...any) {
	p := c.tr.fset.Position(at)
	c.found = append(c.found, fmt.Sprintf("%s:%d: ", p.Filename, p.Line)+fmt.Sprintf(format, args...))
}

func (c *contract) function(d *ast.FuncDecl) {
	name := d.Name.Name
	if !ast.IsExported(name) {
		return
	}
	if d.Recv != nil {
		receiver := receiverName(d.Recv.List[0].Type)
		if !ast.IsExported(receiver) {
			return
		}
		name = receiver + "." + name
	}
	c.call(d.Pos(), name, d.Type, d.Doc.Text())
}

// call judges the comment of a function, a method, or an interface's method
// that returns an error. (Other methods may lean on the interface's comment.)
func (c *contract) call(at token.Pos, name string, signature *ast.FuncType, doc string) {
	switch {
	case doc == "":
		c.breach(at, "%s has no comment", name)
	case strings.HasSuffix(name, ".Unwrap"): // errors.Unwrap's contract, not ours
	case returnsError(signature) && !namesError.MatchString(doc):
		c.breach(at, "%s returns an error and its comment names none", name)
	}
}

func (c *contract) declaration(d *ast.GenDecl) {
	group := ""
	if d.Lparen.IsValid() || len(d.Specs) == 1 {
		group = d.Doc.Text()
	}
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && group+s.Doc.Text()+s.Comment.Text() == "" {
					c.breach(name.Pos(), "%s has no comment", name.Name)
				}
			}
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				c.typ(s, group)
			}
		}
	}
}

func (c *contract) typ(s *ast.TypeSpec, group string) {
	name := s.Name.Name
	if group+s.Doc.Text() == "" {
		c.breach(s.Pos(), "%s has no comment", name)
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		for _, field := range t.Fields.List {
			if strings.HasSuffix(name, "Options") {
				c.option(name, field)
			}
		}
	case *ast.InterfaceType:
		for _, method := range t.Methods.List {
			signature, ok := method.Type.(*ast.FuncType)
			if ok && method.Names[0].IsExported() && returnsError(signature) {
				c.call(method.Pos(), name+"."+method.Names[0].Name, signature, method.Doc.Text())
			}
		}
	}
}

// option judges the comment of a field of an options struct. Fields of other
// structs may lean on the comment of their type.
func (c *contract) option(owner string, field *ast.Field) {
	doc := strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
	for _, name := range field.Names {
		if name.IsExported() && !strings.Contains(doc, "Defaults to") {
			c.breach(name.Pos(), `%s.%s does not say what it "Defaults to"`, owner, name.Name)
		}
	}
}

// receiverName returns T for the receivers T, *T, T[K] and *T[K].
func receiverName(receiver ast.Expr) string {
	switch r := receiver.(type) {
	case *ast.StarExpr:
		return receiverName(r.X)
	case *ast.IndexExpr:
		return receiverName(r.X)
	case *ast.IndexListExpr:
		return receiverName(r.X)
	case *ast.Ident:
		return r.Name
	}
	return ""
}

func returnsError(signature *ast.FuncType) bool {
	if signature.Results == nil {
		return false
	}
	return slices.ContainsFunc(signature.Results.List, func(result *ast.Field) bool {
		ident, ok := result.Type.(*ast.Ident)
		return ok && ident.Name == "error"
	})
}

func TestContract(t *testing.T) {
	for _, breach := range contractBreaches(repository(t)) {
		t.Error(breach)
	}
}

// TestContractFails shows that each rule for comments finds what it is for.
func TestContractFails(t *testing.T) {
	tests := map[string]struct{ source, want string }{
		"package":          {"package concurrency", "the package has no comment"},
		"type":             {"// Package p.\npackage p\ntype T int", "T has no comment"},
		"function":         {"// Package p.\npackage p\nfunc F() {}", "F has no comment"},
		"method":           {"// Package p.\npackage p\n// T is.\ntype T[K any] struct{}\nfunc (t *T[K]) M() {}", "T.M has no comment"},
		"constant":         {"// Package p.\npackage p\nconst C = 1", "C has no comment"},
		"variable":         {"// Package p.\npackage p\nvar (\n\tV int\n)", "V has no comment"},
		"option":           {"// Package p.\npackage p\n// TOptions are.\ntype TOptions struct {\n\t// F is.\n\tF int\n}", `does not say what it "Defaults to"`},
		"interface method": {"// Package p.\npackage p\n// T is.\ntype T interface {\n\tM() error\n}", "T.M has no comment"},
		"error":            {"// Package p.\npackage p\n// F does.\nfunc F() (int, error) { return 0, nil }", "F returns an error and its comment names none"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tr := planted(t, map[string]string{"concurrency/planted.go": tt.source})
			got := contractBreaches(tr)
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("breaches %q, want one: %s", got, tt.want)
			}
		})
	}
}

// TestContractIsForEachPackage shows of which packages comments are contracts.
func TestContractIsForEachPackage(t *testing.T) {
	names := map[string]bool{ // and whether a breach is found
		"cmd/etcdkit/main.go": true, "cmd/etcdkit/internal/cli/verb/v.go": true, "concurrency/internal/share/s.go": true, "concurrency/limithttp/l.go": true,
		"cmd/etcdkit/internal/cli/v_test.go": false, "cmd/etcdkit/internal/cli/clitest/c.go": false, "internal/queue/q.go": false, "examples/fleet/main.go": false,
	}
	for _, dir := range public {
		names[dir+"/planted.go"] = true
	}
	for name, want := range names {
		tr := planted(t, map[string]string{name: "// Package p is.\npackage p\n\n// F does.\nfunc F() error { return nil }\n"})
		if got := contractBreaches(tr); (len(got) == 1 && strings.HasPrefix(got[0], name+":5: F returns an error")) != want || len(got) > 1 {
			t.Errorf("%s: breaches %q, want one: %v", name, got, want)
		}
	}
}

// TestContractPasses shows what the rules for comments accept.
func TestContractPasses(t *testing.T) {
	tr := planted(t, map[string]string{"concurrency/planted.go": `
// Package concurrency limits.
package concurrency

// The causes.
var (
	ErrFull, ErrLost error
	hidden           int
)

// HeldError names the holder.
type HeldError struct {
	Owner string
	since int
}

// Unwrap returns ErrFull.
func (e *HeldError) Unwrap() error { return nil }

// Acquire waits. It fails with a *HeldError.
func Acquire() error { return nil }

// Release gives up. The error is always nil.
func Release() error { return nil }

// Options configure.
type Options struct {
	// TTL is long. Defaults
	// to an hour, as it Defaults to.
	TTL int
}

func helper() error { return nil }

type quiet struct{}

func (quiet) Exported() error { return nil }
`})
	if got := contractBreaches(tr); len(got) != 0 {
		t.Errorf("good comments are refused: %q", got)
	}
}
