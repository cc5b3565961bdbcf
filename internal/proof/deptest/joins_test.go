package deptest

import (
	"fmt"
	"go/ast"
	"testing"
)

// severalLines are the packages that may join errors in several lines: they report to a test, or import
// nothing of ours.
var severalLines = []string{"embedtest", "idempotency/conformance", "idempotency/idemtest", "observe/otelkit"}

// joins reports where the product calls errors.Join: the text has a line for each error, which logs
// take for several records. internal/join writes one.
func joins(tr *tree) (found []string) {
	for _, f := range tr.files {
		if !f.product() || within(f.dir, "internal/proof") || within(f.dir, severalLines...) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "errors" && sel.Sel.Name == "Join" {
				found = append(found, fmt.Sprintf("%s: errors.Join writes a line for each error: use internal/join", tr.fset.Position(n.Pos())))
			}
			return true
		})
	}
	return found
}

func TestJoins(t *testing.T) {
	for _, breach := range joins(repository(t)) {
		t.Error(breach)
	}
}

// TestJoinsFails shows that a breach is found, and that tests and what reports to tests are left alone.
func TestJoinsFails(t *testing.T) {
	const text = "package a\n\nimport \"errors\"\n\nvar err = errors.Join(nil)"
	for path, want := range map[string]int{
		"concurrency/a.go": 1, "internal/lease/a.go": 1, "cmd/etcdkit/a.go": 1,
		"concurrency/a_test.go": 0, "embedtest/a.go": 0, "internal/proof/check/a.go": 0,
	} {
		if got := joins(planted(t, map[string]string{path: text})); len(got) != want {
			t.Errorf("%s: %q, want %d", path, got, want)
		}
	}
}
