package deptest

import (
	"fmt"
	"go/ast"
	"testing"
)

// outliving reports where a function literal that Close of a session waits for takes a context which the session does not end:
// then Close is late while etcd is away.
func outliving(tr *tree) (found []string) {
	for _, f := range tr.files {
		if !f.product() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !startsBackground(call) {
				return true
			}
			for _, arg := range call.Args {
				fn, ok := arg.(*ast.FuncLit)
				if !ok {
					continue
				}
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					if of, ok := n.(*ast.CallExpr); ok && outlasts(of) {
						found = append(found, fmt.Sprintf("%s: Close waits for this function, and its session does not end this context: take that of Session.Later", tr.fset.Position(of.Pos())))
					}
					return true
				})
			}
			return true
		})
	}
	return found
}

// startsBackground reports whether a call starts a goroutine that Close waits for without a bound.
func startsBackground(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && len(call.Args) > 0 && (sel.Sel.Name == "Background" || sel.Sel.Name == "Later")
}

// outlasts reports whether a call returns a context that a session does not end.
func outlasts(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (selected(sel) == "context.Background" || selected(sel) == "context.WithoutCancel" || sel.Sel.Name == "Ctx")
}

// A751: what Close waits for ends with the session.
func TestBackgroundEndsWithTheSession(t *testing.T) {
	for _, breach := range outliving(repository(t)) {
		t.Error(breach)
	}
}

// TestBackgroundEndsWithTheSessionFails shows that a breach is found.
func TestBackgroundEndsWithTheSessionFails(t *testing.T) {
	const begin, end = "package a\n\nimport \"context\"\n\nvar _ = ", "\n"
	for text, want := range map[string]int{
		"s.Background(func() { revoke(context.Background()) })":           1,
		"a.sess.Later(func(context.Context) { revoke(e.client.Ctx()) })":  1,
		"s.Callback(func() { call(context.Background()) })":               0,
		"s.Later(func(ctx context.Context) { revoke(ctx) })":              0,
		"s.Background(func() { follow(s.Context()) })":                    0,
		"revoke(context.Background())":                                    0,
		"context.AfterFunc(ctx, func() { revoke(context.Background()) })": 0,
	} {
		if got := outliving(planted(t, map[string]string{"schedlock/a.go": begin + text + end})); len(got) != want {
			t.Errorf("%s: breaches %q, want %d", text, got, want)
		}
	}
}
