package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Two steps run beside each other, and the next one begins when one of them has ended; those that mostly
// wait run beside them, one after the other. After a step that has failed no other begins.
func TestInTurn(t *testing.T) {
	t.Parallel()
	steps := []step{{target: "test"}, {target: "race"}, {target: "etcd37"}, {target: "more"}, {target: "integration", waits: true}, {target: "bench-test", waits: true}}
	for fails, want := range map[string][]string{
		"":       {"integration 1s", "race 3s", "etcd37 5s", "test 6.5s", "bench-test 8s", "more 9s"},
		"etcd37": {"integration 1s", "race 3s", "etcd37 5s", "test 6.5s", "bench-test 8s"},
		"race":   {"integration 1s", "race 3s", "test 6.5s", "bench-test 8s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			takes := map[string]time.Duration{"test": 6500, "race": 3000, "etcd37": 2000, "more": 4000, "integration": 1000, "bench-test": 7000}
			var at []string
			ended := inTurn(t.Context(), steps, func(s step) outcome {
				time.Sleep(takes[s.target] * time.Millisecond)
				return outcome{step: s, passed: s.target != fails, seconds: time.Since(begun).Seconds()}
			})
			for _, o := range ended {
				at = append(at, o.target+" "+time.Duration(o.seconds*float64(time.Second)).String())
			}
			require.Equal(t, want, at, "if %q fails", fails)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Empty(t, inTurn(ctx, steps, func(s step) outcome { return outcome{step: s, passed: true} }))
}

// A step is a target of make, with its packages and with this program in front of go test. Its output
// is printed as a whole, and what it leaves out is named.
func TestDo(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte("good:\n\t@echo \"$(PKGS) $(TESTFLAGS) $$RERUN\"\nbad:\n\t@false\n"), 0o600))
	t.Chdir(dir)
	var out bytes.Buffer
	g := &gate{dir: "/run", self: "/bin/gate", w: &out}
	o := g.do(t.Context(), step{target: "good", flags: "-short", run: []string{"./a", "./b"}, out: []leftOut{{"./c", "it cannot differ"}}})
	require.True(t, o.passed)
	require.Contains(t, out.String(), "./a ./b -short /bin/gate test -again -flaky /run/flaky -times /run/times -target good\n")
	require.Contains(t, out.String(), "== make good leaves out ./c: it cannot differ\n== make good -short passed in 0 s\n")
	require.False(t, g.do(t.Context(), step{target: "bad"}).passed)

	const parted = "package a\n\nimport \"testing\"\n\nfunc TestSeeds(t *testing.T) { t.Log(testing.Short()) }\n\nfunc TestLong(t *testing.T) {\n\tif testing.Short() {\n\t\tt.Skip(\"an hour\")\n\t}\n}\n"
	for _, where := range []string{"a", "bench/b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, where), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, where, "a_test.go"), []byte(parted), 0o600))
	}
	for want, s := range map[string]step{
		"SKIP a.TestSeeds: a part of it is left out by -short\n": {target: "good", flags: "-short", run: []string{"./a", "./b"}},
		"SKIP b.TestSeeds: a part of it is left out by -short\n": {target: "bench-test", flags: "-short"},
		"": {target: "good", run: []string{"./a"}},
	} {
		out.Reset()
		require.NoError(t, s.printParts(&out))
		require.Equal(t, want, out.String(), s.target)
	}
	out.Reset()
	g.do(t.Context(), step{target: "good", flags: "-short", run: []string{"./a"}})
	require.Contains(t, out.String(), "SKIP a.TestSeeds: a part")
	out.Reset()
	require.True(t, g.do(t.Context(), step{target: "bad", skip: "nothing has changed"}).passed)
	require.Equal(t, "== make bad is left out: nothing has changed\n", out.String())
}

// The plan has every test once, whole, and leaves out what has not changed.
func TestPlan(t *testing.T) {
	t.Parallel()
	all := []pkg{{"./a", true}, {"./console", true}, {"./examples/fleet", true}}
	g := &gate{slow: []string{"examples/fleet"}}
	steps := g.plan(all, func(string) string { return "" })
	require.Equal(t, []string{"./examples/fleet", "./a", "./console"}, steps[0].run, "slowest first")
	require.Empty(t, steps[0].flags)
	require.Empty(t, steps[0].out)
	for _, s := range steps {
		require.Empty(t, s.skip)
	}
	steps = g.plan(all, func(what string) string { return what + " as it was" })
	byTarget := map[string]step{}
	for _, s := range steps {
		byTarget[s.target] = s
	}
	require.Equal(t, "bench as it was", byTarget["bench-test"].skip)
	require.Equal(t, "-skip=^TestConsole", byTarget["integration"].flags)
	require.Equal(t, "browser as it was", byTarget["integration"].out[0].why)
	require.Empty(t, byTarget["test"].skip)
}

// A run is green if all of its steps have passed. It is written to the pages then, unless a test has
// passed only the second time.
func TestFinish(t *testing.T) {
	good, bad := outcome{step: step{target: "test"}, passed: true, seconds: 130}, outcome{step: step{target: "race"}}
	for name, tt := range map[string]struct {
		ended   []outcome
		flaky   string
		passed  bool
		written bool
		says    string
	}{
		"green":       {[]outcome{good, good}, "", true, true, "\n2 passed, 0 failed\n"},
		"flaky":       {[]outcome{good, good}, "FLAKY a.TestX: once\nFLAKY a.TestX: once\n", true, false, "FLAKY a.TestX: once\n2 passed, 0 failed\n"},
		"red":         {[]outcome{good, bad}, "", false, false, "make race FAILED\n1 passed, 1 failed\n"},
		"interrupted": {[]outcome{good}, "", false, false, "1 targets did not begin\n1 passed, 0 failed\n"},
		"not begun":   {nil, "", false, false, "2 targets did not begin\n0 passed, 0 failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "docs"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, pageFile), []byte(firstMark+lastMark), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, readmeFile), []byte("make test # 9 minutes on two cores\n"), 0o600))
			t.Chdir(dir)
			var out bytes.Buffer
			g := &gate{dir: t.TempDir(), w: &out}
			require.NoError(t, os.WriteFile(g.flaky(), []byte(tt.flaky), 0o600))
			passed, err := g.finish(measured{}, tt.ended, 2)
			require.NoError(t, err)
			require.Equal(t, tt.passed, passed)
			require.True(t, strings.HasSuffix(out.String(), tt.says), out.String())
			page, err := os.ReadFile(pageFile)
			require.NoError(t, err)
			require.Equal(t, tt.written, strings.Contains(string(page), "| `test` | passed |"))
			readme, err := os.ReadFile(readmeFile)
			require.NoError(t, err)
			require.Equal(t, tt.written && runtime.NumCPU() == 2, string(readme) == "make test # 3 minutes on two cores\n")
			report, err := os.ReadFile(reportFile)
			require.NoError(t, err)
			require.NotEmpty(t, report)
		})
	}
}
