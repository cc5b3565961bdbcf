package deptest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

// longWait is from which duration on a constant wait of a test is long. A test that waits by the clock costs its time
// in each run, and what it shows depends on how busy the machine is.
const longWait = time.Second

// longWaits are the functions of tests that wait by the clock for at least longWait although -short does not skip them,
// each with the reason. The list may only shrink: a row is removed with its wait.
var longWaits = map[string]string{
	"cmd/etcdkit/internal/cli/cron.TestJobsRunThatEndsWithoutEtcd": "a real process that must not end in that time",
	"cmd/etcdkit/internal/guard.TestRemoteEndsWithItsGuard":        "a real process that must not report in that time",
	"embedtest.leakAnother":                         "a goroutine that is meant to be left",
	"embedtest.leakOne":                             "a goroutine that is meant to be left",
	"embedtest/etcdfake.outage":                     "an example for a page, which the test runs in a bubble",
	"examples/quickstart/worker.TestMetrics":        scraped,
	"integration.TestConsoleInABrowser":             "a page in a real browser that must not change in that time",
	"integration.TestRobfigJob":                     "robfig/cron is stopped until after a fire time",
	"internal/examples/metrics.TestProcesses":       scraped,
	"internal/examples/metrics.TestScrape":          scraped,
	"internal/proof/alertday.TestFaults":            aDay,
	"internal/proof/alertday.TestFaultsOfAll":       aDay,
	"internal/proof/alertday.TestHealthyDay":        aDay,
	"internal/proof/check.TestUpstreamMutexGoesRed": "locks of etcd's own client, on a real etcd",
}

const (
	scraped = "a bound: what scrapes fails the test afterwards"
	aDay    = "it takes minutes, and runs if ALERTS_DAY is set"
)

// A waiter finds waits in the tests of a module.
type waiter struct {
	module    string                         // its folder with a slash behind it, or ""
	constants map[string]map[string]ast.Expr // of packages, by folder and name
	virtual   map[string]bool                // functions whose time is virtual, by folder and name
}

// waitsOf returns the functions in tests that wait for at least longWait by the clock, with the folder before their
// names. Those that ask testing.Short, benchmarks, and what uses virtual time are left out.
func waitsOf(module string, tr *tree) (names []string) {
	w := &waiter{module, map[string]map[string]ast.Expr{}, map[string]bool{}}
	for _, f := range tr.files {
		w.constants[f.dir] = declare(w.constants[f.dir], f.ast.Decls...)
	}
	for w.spread(tr) {
	}
	for _, f := range tr.files {
		if !strings.HasSuffix(f.path, "_test.go") || slices.Contains(f.imports(), "testing/synctest") || within(f.dir, "internal/proof/virtual") {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || strings.HasPrefix(fn.Name.Name, "Benchmark") || calls(fn.Body, "Short") || w.virtual[f.dir+"."+fn.Name.Name] {
				continue
			}
			if w.waits(scope{f, localsOf(fn.Body)}, fn.Body) {
				names = append(names, path.Join(module, f.dir)+"."+fn.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// spread adds the functions that call synctest, or one that is known to, and reports whether there were any.
func (w *waiter) spread(tr *tree) (more bool) {
	for _, f := range tr.files {
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || w.virtual[f.dir+"."+fn.Name.Name] {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if id, ok := call.Fun.(*ast.Ident); ok && w.virtual[f.dir+"."+id.Name] || named(call, "synctest", "Test") {
					w.virtual[f.dir+"."+fn.Name.Name], more = true, true
				}
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && w.virtual[w.folder(f, sel)+"."+sel.Sel.Name] {
					w.virtual[f.dir+"."+fn.Name.Name], more = true, true
				}
				return true
			})
		}
	}
	return more
}

// folder returns the folder of the package of which a selector names something, or "".
func (w *waiter) folder(f file, sel *ast.SelectorExpr) string {
	if pkg, ok := sel.X.(*ast.Ident); ok {
		for _, imported := range f.imports() {
			if dir, ok := ours(imported); ok && path.Base(dir) == pkg.Name {
				return strings.TrimPrefix(dir, w.module)
			}
		}
	}
	return ""
}

// declare adds the constants and variables of declarations to those of a package or function. A variable that is assigned
// elsewhere counts as what it was declared with.
func declare(all map[string]ast.Expr, decls ...ast.Decl) map[string]ast.Expr {
	if all == nil {
		all = map[string]ast.Expr{}
	}
	for _, decl := range decls {
		of, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range of.Specs {
			if of, ok := spec.(*ast.ValueSpec); ok && len(of.Values) == len(of.Names) {
				for i, name := range of.Names {
					all[name.Name] = of.Values[i]
				}
			}
		}
	}
	return all
}

// A scope is a function in a file, with what it declares.
type scope struct {
	file
	locals map[string]ast.Expr
}

func localsOf(body *ast.BlockStmt) map[string]ast.Expr {
	all := map[string]ast.Expr{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeclStmt:
			declare(all, n.Decl)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for i, name := range n.Lhs {
					if len(n.Lhs) == len(n.Rhs) {
						all[name.(*ast.Ident).Name] = n.Rhs[i] //nolint:forcetypeassert // := defines names
					} else {
						all[name.(*ast.Ident).Name] = nil //nolint:forcetypeassert // := defines names
					}
				}
			}
		case *ast.RangeStmt:
			for _, x := range []ast.Expr{n.Key, n.Value} {
				if id, ok := x.(*ast.Ident); ok {
					all[id.Name] = nil
				}
			}
		case *ast.FuncType:
			for _, param := range n.Params.List {
				for _, name := range param.Names {
					all[name.Name] = nil
				}
			}
		}
		return true
	})
	return all
}

// waits reports whether a function waits by the clock for at least longWait. A time that ends a wait for something else,
// and fails the test then, is no wait.
func (w *waiter) waits(f scope, body *ast.BlockStmt) (found bool) {
	long := func(x ast.Expr) bool { return w.duration(f, x, 0) >= longWait }
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommClause:
			if endsTest(n) {
				for _, stmt := range n.Body {
					found = found || w.waits(f, &ast.BlockStmt{List: []ast.Stmt{stmt}})
				}
				return false
			}
		case *ast.UnaryExpr:
			call, ok := n.X.(*ast.CallExpr)
			found = found || n.Op == token.ARROW && ok && named(call, "time", "After") && long(call.Args[0])
		case *ast.CallExpr:
			switch {
			case named(n, "time", "Sleep"):
				found = found || long(n.Args[0])
			case named(n, "require", "Never"), named(n, "assert", "Never"):
				found = found || len(n.Args) > 2 && long(n.Args[2])
			}
		}
		return !found
	})
	return found
}

// endsTest reports whether a case of a select is what fails a test after a time.
func endsTest(clause *ast.CommClause) bool {
	for _, stmt := range clause.Body {
		for _, name := range []string{"Fatal", "Error", "Fail", "New"} {
			if calls(stmt, name) {
				return true
			}
		}
	}
	return false
}

// named reports whether a call is of a function of a package.
func named(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// units are the constants of package time.
var units = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
	"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// duration returns the value of a constant expression, or 0 if it is not known.
func (w *waiter) duration(f scope, x ast.Expr, depth int) time.Duration {
	if v := constant.ToInt(w.value(f, x, depth)); v.Kind() == constant.Int {
		d, _ := constant.Int64Val(v)
		return time.Duration(d)
	}
	return 0
}

func (w *waiter) value(f scope, x ast.Expr, depth int) constant.Value {
	unknown := constant.MakeUnknown()
	if depth > 10 { // a name that is declared by itself
		return unknown
	}
	switch x := x.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(x.Value, x.Kind, 0)
	case *ast.ParenExpr:
		return w.value(f, x.X, depth+1)
	case *ast.Ident:
		of, local := f.locals[x.Name]
		if !local {
			of = w.constants[f.dir][x.Name]
		}
		if of != nil {
			return w.value(f, of, depth+1)
		}
	case *ast.SelectorExpr:
		pkg, ok := x.X.(*ast.Ident)
		if !ok {
			return unknown
		}
		if unit, ok := units[x.Sel.Name]; ok && pkg.Name == "time" {
			return constant.MakeInt64(int64(unit))
		}
		if of := w.constants[w.folder(f.file, x)][x.Sel.Name]; of != nil {
			return w.value(f, of, depth+1)
		}
	case *ast.CallExpr: // time.Duration(x)
		if named(x, "time", "Duration") && len(x.Args) == 1 {
			return w.value(f, x.Args[0], depth+1)
		}
	case *ast.BinaryExpr:
		left, right := w.value(f, x.X, depth+1), w.value(f, x.Y, depth+1)
		left, right = constant.ToInt(left), constant.ToInt(right)
		if left.Kind() != constant.Int || right.Kind() != constant.Int {
			return unknown
		}
		switch x.Op {
		case token.ADD, token.SUB, token.MUL:
			return constant.BinaryOp(left, x.Op, right)
		case token.QUO:
			if constant.Sign(right) != 0 {
				return constant.BinaryOp(left, token.QUO_ASSIGN, right) // of integers
			}
		}
	}
	return unknown
}

// waitBreaches compares the functions that wait with the rows of those that may.
func waitBreaches(found []string, rows map[string]string) (breaches []string) {
	for _, name := range found {
		if rows[name] == "" {
			breaches = append(breaches, fmt.Sprintf("%s waits by the clock for %v or longer, and asks no testing.Short: wait for what the test is about, use virtual time, or skip it with -short", name, longWait))
		}
	}
	for name := range rows {
		if !slices.Contains(found, name) {
			breaches = append(breaches, name+" does not wait, or asks testing.Short: remove its row from longWaits")
		}
	}
	slices.Sort(breaches)
	return breaches
}

// A550: tests wait for what they are about, and not for a time.
func TestLongWaits(t *testing.T) {
	var found []string
	for module, tr := range modules(t) {
		found = append(found, waitsOf(module, tr)...)
	}
	for _, breach := range waitBreaches(found, longWaits) {
		t.Error(breach)
	}
}

// TestLongWaitsFail shows that a wait by the clock is found out, and that the list of those that may only shrinks.
func TestLongWaitsFail(t *testing.T) {
	const (
		bound  = "select {\ncase <-ch:\ncase <-time.After(time.Minute):\nt.Fatal(\"late\")\n}\n"
		passes = "select {\ncase <-ch:\nt.Fatal(\"early\")\ncase <-time.After(time.Second):\n}\n"
		waits  = "schedlock.TestX waits by the clock"
	)
	for name, tt := range map[string]struct {
		body string
		path string
		rows map[string]string
		want string // of the one breach, or none
	}{
		"sleeps":                {body: "time.Sleep(time.Second)\n", want: waits},
		"sleeps in a goroutine": {body: "go func() { time.Sleep(2 * time.Second) }()\n", want: waits},
		"by a constant":         {body: "const d = 400 * time.Millisecond\ntime.Sleep(3 * d)\n", want: waits},
		"by one of its package": {body: "time.Sleep(pause)\n", want: waits},
		"by one of another":     {body: "time.Sleep(testkit.Soon)\n", want: waits},
		"by a number":           {body: "time.Sleep(time.Duration(2e9))\n", want: waits},
		"waits for a timer":     {body: "<-time.After(time.Second + 1)\n", want: waits},
		"passes after a time":   {body: passes, want: waits},
		"nothing happens":       {body: "require.Never(t, f, 3*time.Second/2, time.Millisecond)\n", want: waits},
		"sleeps after a bound":  {body: "select {\ncase <-time.After(time.Minute):\ntime.Sleep(time.Minute)\nt.Fatal()\n}\n", want: waits},
		"a bound":               {body: bound},
		"a short one":           {body: "time.Sleep(time.Second - 1)\n"},
		"half of one":           {body: "time.Sleep(pause / 4)\n"},
		"by a variable":         {body: "d := 2 * time.Second\ntime.Sleep(d)\n", want: waits},
		"of a table":            {body: "for _, pause := range all {\ntime.Sleep(pause)\n}\n"},
		"of a parameter":        {body: "func(pause time.Duration) { time.Sleep(pause) }(1)\n"},
		"in a bubble":           {body: "bubble(func() { time.Sleep(time.Hour) })\n"},
		"in another's bubble":   {body: "testkit.Bubble(func() { time.Sleep(time.Hour) })\n"},
		"what is not known":     {body: "time.Sleep(time.Until(midnight))\n"},
		"a name of itself":      {body: "const a = a\ntime.Sleep(a)\n"},
		"skipped":               {body: "if testing.Short() {\nt.Skip(\"it waits: 1 s\")\n}\ntime.Sleep(time.Second)\n"},
		"in virtual time":       {body: "time.Sleep(time.Hour)\n", path: "internal/proof/virtual/a_test.go"},
		"no test":               {body: "time.Sleep(time.Hour)\n", path: "schedlock/a.go"},
		"listed":                {body: "time.Sleep(time.Hour)\n", rows: map[string]string{"schedlock.TestX": "why"}},
		"listed without reason": {body: "time.Sleep(time.Hour)\n", rows: map[string]string{"schedlock.TestX": ""}, want: waits},
		"no longer waits":       {body: bound, rows: map[string]string{"schedlock.TestX": "why"}, want: "remove its row"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.path == "" {
				tt.path = "schedlock/a_test.go"
			}
			tr := planted(t, map[string]string{
				tt.path:                             "package a\nimport \"" + module + "/internal/proof/testkit\"\nfunc TestX(t *testing.T) {\n" + tt.body + "}\nfunc BenchmarkX(b *testing.B) { time.Sleep(time.Hour) }\n",
				path.Dir(tt.path) + "/help_test.go": "package a\nimport \"" + module + "/internal/proof/testkit\"\nvar pause = 2 * time.Second\nfunc bubble(f func()) { testkit.Bubble(f) }\n",
				"schedlock/v_test.go":               "package a\nimport \"testing/synctest\"\nfunc TestV() { time.Sleep(time.Hour) }\n",
				"internal/proof/testkit/kit.go":     "package testkit\nconst Soon = time.Minute\nfunc Bubble(f func()) { synctest.Test(f) }\n",
			})
			got := waitBreaches(waitsOf("", tr), tt.rows)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("breaches %q, want %q", got, tt.want)
			}
		})
	}
}
