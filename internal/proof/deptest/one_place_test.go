package deptest

import (
	"fmt"
	"go/ast"
	"testing"
)

// onePlace are functions and methods that one part of the product calls for all others.
var onePlace = []struct {
	names []string // package.Function, or a method's name
	in    string   // where the rule holds
	but   []string // the parts of that which may call them
	why   string
}{
	{[]string{"ZoneBounds"}, "", []string{"internal/ticks"}, "its answer depends on the format of the zone's file: call ticks.Offset"},
	{
		[]string{"os.Open", "os.ReadFile", "io.ReadAll"}, "cmd/etcdkit/internal/cli", []string{"cmd/etcdkit/internal/cli/verb", "cmd/etcdkit/internal/cli/clitest"},
		"no signal ends the read of a pipe: call verb.Input",
	},
}

// places reports where the product calls what another part of it calls for all.
func places(tr *tree) (found []string) {
	for _, f := range tr.files {
		for _, rule := range onePlace {
			if !f.product() || rule.in != "" && !within(f.dir, rule.in) || within(f.dir, rule.but...) {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for _, name := range rule.names {
					if isCallOf(call, name) {
						found = append(found, fmt.Sprintf("%s: %s: %s", tr.fset.Position(n.Pos()), name, rule.why))
					}
				}
				return true
			})
		}
	}
	return found
}

// isCallOf reports whether a call is of a function, package.Function, or of a method. The null device is no input.
func isCallOf(call *ast.CallExpr, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 1 && selected(call.Args[0]) == "os.DevNull" {
		return false
	}
	return sel.Sel.Name == name || selected(sel) == name
}

// selected returns a selection from a name, such as of a package, as text, or "".
func selected(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if of, ok := sel.X.(*ast.Ident); ok {
			return of.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

func TestOnePlace(t *testing.T) {
	for _, breach := range places(repository(t)) {
		t.Error(breach)
	}
}

// TestOnePlaceFails shows that a breach is found, and that tests and the place itself are left alone.
func TestOnePlaceFails(t *testing.T) {
	const zone = "package a\n\nvar _, _ = at().ZoneBounds()"
	const file = "package a\n\nimport \"os\"\n\nvar f, err = os.Open(name)"
	const null = "package a\n\nimport \"os\"\n\nvar f, err = os.Open(os.DevNull)"
	for path, c := range map[string]struct {
		text string
		want int
	}{
		"schedlock/a.go": {zone, 1}, "internal/ticks/a.go": {zone, 0}, "schedlock/a_test.go": {zone, 0},
		"cmd/etcdkit/internal/cli/cron/a.go": {file, 1}, "cmd/etcdkit/internal/cli/cron/b.go": {null, 0},
		"cmd/etcdkit/internal/cli/verb/a.go": {file, 0}, "console/a.go": {file, 0},
	} {
		if got := places(planted(t, map[string]string{path: c.text})); len(got) != c.want {
			t.Errorf("%s: %q, want %d", path, got, c.want)
		}
	}
}
