package deptest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// What a test needs that virtual time does not have.
const (
	servers     = "members of a real etcd that change, stop or are restored"
	connections = "real connections, whose ends and repetitions it is about"
	passwords   = "passwords and tokens of a real etcd"
	processes   = "real processes"
	costs       = "it measures what a real etcd or a real process pays"
)

// realTime are the tests that wait for real time, each with what it needs that virtual time does not have.
// The list may only shrink: a row is removed with its test.
var realTime = map[string]string{
	"concurrency.TestBlackHoledMember":                       servers,
	"concurrency.TestContextEndsBeforeKey":                   servers,
	"concurrency.TestDeadHolderAcrossALeaderChange":          servers,
	"concurrency.TestIdleSemaphoresCostLittle":               costs,
	"concurrency.TestKeyedLimiterMemory":                     costs,
	"concurrency.TestKeyedLimiterWaitersOutliveTheirWatches": connections,
	"concurrency.TestLeaderChangesCostNoHolder":              servers,
	"concurrency.TestLeaderCrashUnderLoad":                   servers,
	"concurrency.TestLoadBudgetOfRenewals":                   costs,
	"concurrency.TestManyCallersWaitForOneName":              costs,
	"concurrency.TestNoAuthStorm":                            passwords,
	"concurrency.TestOutageUnderGRPCsBackOff":                connections,
	"concurrency.TestPermissionLost":                         passwords,
	"concurrency.TestRateOfProcesses":                        processes,
	"concurrency.TestRestoreFromABackup":                     servers,
	"concurrency.TestTrapL9ShortTokens":                      passwords,
	"concurrency.TestTryWhileEtcdIsStopped":                  connections,
	"concurrency/limithttp.TestAway":                         costs,
	"concurrency/limithttp.TestEtcdIsGone":                   servers,
	"concurrency/limithttp.TestRateWithoutEtcd":              servers,
	"idempotency.TestEndedRequestsLeaveNothing":              costs,
	"idempotency/idemtest.TestLargeResultIsKept":             costs,
	"schedlock.TestEndedRunsLeaveNothing":                    costs,
	"schedlock.TestManyTicks":                                costs,
	"schedlock.TestSpareLeasesOfManyCallers":                 costs,
}

// skippedByShort lists the tests of the three packages, and of those below, that -short skips, as a whole or
// some of their subtests: by CONTRIBUTING.md they depend on seconds of real time.
func skippedByShort(tr *tree) (names []string) {
	for _, f := range tr.files {
		if !strings.HasSuffix(f.path, "_test.go") || !within(f.dir, "concurrency", "schedlock", "idempotency") {
			continue
		}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil && skipsIfShort(fn.Body) {
				names = append(names, f.dir+"."+fn.Name.Name)
			}
		}
	}
	return names
}

// skipsIfShort reports whether a function asks testing.Short and skips then.
func skipsIfShort(body *ast.BlockStmt) (skips bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if branch, ok := n.(*ast.IfStmt); ok && calls(branch.Cond, "Short") && calls(branch.Body, "Skip") {
			skips = true
		}
		return true
	})
	return skips
}

// calls reports whether a part of a function calls a method or function whose name begins so.
func calls(part ast.Node, name string) (found bool) {
	ast.Inspect(part, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			sel, ok := call.Fun.(*ast.SelectorExpr)
			found = found || ok && strings.HasPrefix(sel.Sel.Name, name)
		}
		return true
	})
	return found
}

// realTimeBreaches compares the tests that -short skips with the rows of those that may wait for real time.
func realTimeBreaches(skipped []string, rows map[string]string) (found []string) {
	for _, name := range skipped {
		if rows[name] == "" {
			found = append(found, name+" is skipped by -short, so it waits for real time: test it in internal/proof/virtual, or add it to realTime with what it needs that virtual time does not have")
		}
	}
	for name := range rows {
		if !slices.Contains(skipped, name) {
			found = append(found, fmt.Sprintf("%s does not exist, or -short does not skip it: remove its row from realTime", name))
		}
	}
	slices.Sort(found)
	return found
}

// TestRealTime keeps tests that wait for leases and other seconds out of the packages that can be tested in
// virtual time.
func TestRealTime(t *testing.T) {
	for _, breach := range realTimeBreaches(skippedByShort(repository(t)), realTime) {
		t.Error(breach)
	}
}

// TestRealTimeFails shows that a test that waits for real time is found out, and that the list of those that
// may shrinks with them.
func TestRealTimeFails(t *testing.T) {
	const (
		head  = "package a\nfunc TestX(t *testing.T) {\n"
		skip  = "if testing.Short() {\nt.Skip(\"it waits for a lease: 4 s\")\n}\n"
		sub   = "t.Run(\"a\", func(t *testing.T) {\nif far && testing.Short() {\nt.Skipf(\"%v\", d)\n}\n})\n"
		fewer = "if testing.Short() {\nseeds = 2\n}\n"
		other = "if browser == \"\" {\nt.Skip(\"there is no browser\")\n}\n"
	)
	for name, tt := range map[string]struct {
		path, body string
		rows       map[string]string
		want       string // of the one breach, or none
	}{
		"skipped":           {"schedlock/a_test.go", skip, nil, "schedlock.TestX is skipped by -short"},
		"below":             {"concurrency/limithttp/a_test.go", skip, nil, "concurrency/limithttp.TestX is skipped by -short"},
		"a subtest":         {"idempotency/a_test.go", sub, nil, "idempotency.TestX is skipped by -short"},
		"no reason":         {"schedlock/a_test.go", skip, map[string]string{"schedlock.TestX": ""}, "schedlock.TestX is skipped by -short"},
		"listed":            {"schedlock/a_test.go", skip, map[string]string{"schedlock.TestX": servers}, ""},
		"fewer seeds":       {"schedlock/a_test.go", fewer, nil, ""},
		"another skip":      {"schedlock/a_test.go", other + fewer, nil, ""},
		"another package":   {"embedtest/a_test.go", skip, nil, ""},
		"in virtual time":   {"internal/proof/virtual/a_test.go", skip, nil, ""},
		"no longer skips":   {"schedlock/a_test.go", fewer, map[string]string{"schedlock.TestX": servers}, "schedlock.TestX does not exist, or -short does not skip it: remove"},
		"moved elsewhere":   {"internal/proof/virtual/a_test.go", skip, map[string]string{"schedlock.TestX": servers}, "schedlock.TestX does not exist, or -short does not skip it: remove"},
		"not a test's file": {"schedlock/a.go", skip, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := realTimeBreaches(skippedByShort(planted(t, map[string]string{tt.path: head + tt.body + "}\n"})), tt.rows)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("breaches %q, want %q", got, tt.want)
			}
		})
	}
}
