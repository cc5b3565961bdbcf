package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/mutants"
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
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		var at []string
		steps := []step{{target: "race"}, {target: "vet", vets: true}, {target: "test"}, {target: "integration", waits: true}}
		takes := map[string]time.Duration{"race": 5 * time.Second, "vet": 2 * time.Second, "integration": 1 * time.Second}
		inTurn(t.Context(), steps, func(s step) outcome {
			mu.Lock()
			at = append(at, s.target+" "+time.Since(begun).String())
			mu.Unlock()
			time.Sleep(takes[s.target])
			return outcome{step: s, passed: true}
		})
		require.ElementsMatch(t, []string{"race 0s", "vet 0s"}, at[:2])
		require.ElementsMatch(t, []string{"test 2s", "integration 2s"}, at[2:], "it waits for vet")
	})
	synctest.Test(t, func(t *testing.T) {
		steps := []step{{target: "race"}, {target: "test"}, {target: "vet", vets: true}, {target: "integration", waits: true}}
		ended := inTurn(t.Context(), steps, func(s step) outcome { return outcome{step: s} })
		require.NotEmpty(t, ended)
		require.NotContains(t, ended, outcome{step: steps[3]}, "nothing was vetted")
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Empty(t, inTurn(ctx, steps, func(s step) outcome { return outcome{step: s, passed: true} }))
}

// The tests that a step leaves out by name exist, and the target that runs them runs all of them.
func TestTestsByName(t *testing.T) {
	t.Chdir("../../..")
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	require.Contains(t, string(makefile), "-run="+browserTests+" ", "make browser runs what the gate leaves out of integration")
	for dir, pattern := range map[string]string{"integration": browserTests, "internal/proof/signals": alertTests} {
		funcs, err := functionsOf(dir)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(funcs, func(f function) bool { return regexp.MustCompile(pattern).MatchString(f.name) }), "%s has no test %s", dir, pattern)
	}
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
	require.Contains(t, out.String(), "./a ./b -short /bin/gate test -again -tests /run/tests -times /run/times -target good\n")
	require.Contains(t, out.String(), "== make good leaves out ./c: it cannot differ\n== make good -short passed in 0 s\n")
	require.False(t, g.do(t.Context(), step{target: "bad"}).passed)
	for output, skipped := range map[string]bool{
		"SKIP integration.TestConsoleInABrowser": true, "SKIP integration.TestConsoleByAxe": false, // axe-core alone is missing
		"SKIP cron.TestCron: the machine is too busy for a TTL of 2 s":                                                  true,
		"SKIP work.TestLocks/redsync: there is no Redis to measure: no redis-server in PATH, and REDIS_ADDR is not set": true,
	} {
		require.Equal(t, skipped, g.do(t.Context(), step{target: "good", run: []string{output}}).skipped, output)
	}

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

// The plan has every test once with etcd's floor, whole, and leaves out what has not changed.
func TestPlan(t *testing.T) {
	t.Parallel()
	all := []pkg{{path: "./a", etcd: true}, {path: "./b", etcd: true}, {path: "./console", etcd: true}, {path: "./examples/fleet", etcd: true}, {path: "./internal/proof/deptest", etcd: false}}
	long := []shortened{{"./a", "TestLong", "an hour"}, {"./a", "TestPart", ""}, {"./b", "TestLong", ""}, {"./examples/fleet", "TestFleet", ""}, {"./a", "FuzzShort", ""}}
	g := &gate{slow: []string{"examples/fleet", "console", "b"}, bare: []string{"./cmd/bare"}}
	planned := func(changed func(string) string) map[string]step {
		byName := map[string]step{}
		for _, s := range g.plan(all, long, changed) {
			byName[cmp.Or(s.name, s.target)] = s
		}
		return byName
	}
	steps := planned(func(string) string { return "" })
	require.Len(t, steps, 9)
	race, test, longs := steps["race"], steps["test"], steps["long"]
	require.Equal(t, []string{"./console", "./b", "./a"}, race.run, "slowest first")
	require.Equal(t, "-short", race.flags)
	require.Equal(t, []string{"TESTTIMEOUT=15m"}, race.args, "a test that hangs ends the run sooner than make race")
	require.Equal(t, []string{"./internal/proof/deptest"}, test.run, "what is not raced")
	require.Equal(t, []string{"./examples/fleet"}, steps["examples"].run, "beside it")
	require.Equal(t, []string{"VETPKGS="}, steps["examples"].args, "vet vets them")
	require.Equal(t, []string{"VETPKGS="}, test.args, "and these")
	require.Empty(t, steps["examples"].flags, "whole")
	require.Empty(t, test.flags, "whole")
	require.Len(t, test.out, 3)
	require.Equal(t, []string{"./b", "./a"}, longs.run, "of what is raced")
	require.Equal(t, []string{"VETPKGS=./console ./examples/fleet ./cmd/bare"}, steps["etcd37"].args, "what has etcd and is not compiled for its tests")
	require.Equal(t, "'-run=^(TestLong|TestPart)$$'", longs.flags)
	for _, s := range steps {
		require.Empty(t, s.skip)
	}
	steps = planned(func(what string) string { return what + " as it was" })
	require.Equal(t, "bench as it was", steps["bench-test"].skip)
	require.Equal(t, "demos as it was", steps["demos-test"].skip)
	require.Equal(t, "-short -skip=^TestConsole", steps["integration"].flags)
	require.Equal(t, "browser as it was", steps["integration"].out[0].why)
	require.Empty(t, steps["test"].skip)
	require.Equal(t, "-skip=TestRulesOfAlerts", steps["test"].flags)
	require.Equal(t, "alerts as it was", steps["test"].out[3].why)
	require.Empty(t, steps["examples"].flags)
	require.NotContains(t, steps["long"].flags, "-skip")
}

var testedOnce = sync.OnceValues(func() ([]pkg, error) { return tested(context.Background()) })

// thisTree lists the packages of this tree, which is the working directory, once for all tests: the go command needs
// seconds of processor time for it.
func thisTree(t *testing.T) []pkg {
	t.Helper()
	all, err := testedOnce()
	require.NoError(t, err)
	return all
}

// In this tree, each test runs in the gate with etcd's floor, whole: where the race detector's run leaves out the
// package, or a part of the test.
func TestPlanOfThisTree(t *testing.T) {
	t.Chdir("../../..")
	all := thisTree(t)
	long, err := shortenedOf(paths(all))
	require.NoError(t, err)
	byName := map[string]step{}
	for _, s := range (&gate{}).plan(all, long, func(string) string { return "" }) {
		byName[cmp.Or(s.name, s.target)] = s
	}
	raced, longs := byName["race"], byName["long"]
	run := runOf(longs)
	require.ElementsMatch(t, paths(all), slices.Concat(raced.run, byName["test"].run, byName["examples"].run), "each package once")
	for _, l := range long {
		if slices.Contains(raced.run, l.dir) {
			require.Contains(t, longs.run, l.dir)
			require.Regexp(t, run, l.test)
		}
	}
	require.Regexp(t, run, "TestChaos")
	require.NotRegexp(t, run, "TestMutex")
	for _, dir := range raced.run {
		require.Empty(t, unattributed(t, dir), "these ask testing.Short, and long runs no test for them")
	}
	// Tests of other folders that call such a helper are not known as shortened.
	require.Equal(t, []string{"internal/examples/progtest/demo.go"}, helpersThatAsk(t))
	for _, dir := range raced.run {
		funcs, err := functionsOf(dir)
		require.NoError(t, err)
		for _, f := range funcs {
			require.NotContains(t, f.calls, "Frame", "%s.%s calls progtest.Frame", dir, f.name)
		}
	}
}

// The names of the long tests arrive at go test as they are: with another pattern, which may match nothing, long
// would pass without a test.
func TestLongThroughMake(t *testing.T) {
	t.Chdir("../../..")
	s := (&gate{}).long([]string{"./a"}, []shortened{{"./a", "TestLong", ""}, {"./a", "TestPart", ""}})
	out, err := exec.CommandContext(t.Context(), "make", append([]string{s.target, "TESTFLAGS=" + s.flags, "PKGS=./a", `RERUN=printf %s\\n`}, s.args...)...).Output()
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(out), "\n"), "-run=^(TestLong|TestPart)$", string(out))
	require.NotContains(t, string(out), "-short")
}

// wholeIn returns the step that runs a test whole with etcd's floor, or "".
func wholeIn(steps []step, long []shortened, dir, test string) string {
	cut := slices.ContainsFunc(long, func(l shortened) bool { return l.dir == dir && l.test == test })
	for _, s := range steps {
		chosen := !strings.Contains(s.flags, "-run=") || runOf(s).MatchString(test)
		if s.target != "etcd37" && s.skip == "" && slices.Contains(s.run, dir) && chosen && !(cut && strings.Contains(s.flags, "-short")) {
			return cmp.Or(s.name, s.target)
		}
	}
	return ""
}

// runOf returns the pattern of the tests that a step runs.
func runOf(s step) *regexp.Regexp {
	return regexp.MustCompile(strings.ReplaceAll(strings.Trim(strings.TrimPrefix(s.flags, "'-run="), "'"), "$$", "$"))
}

func TestWholeIn(t *testing.T) {
	t.Parallel()
	long := []shortened{{"./a", "TestLong", "an hour"}, {"./a", "TestPart", ""}, {"./c", "TestLong", ""}}
	steps := []step{
		{target: "race", flags: "-short", run: []string{"./a", "./b"}},
		{target: "test", name: "long", flags: "'-run=^(TestLong)$$'", run: []string{"./a"}},
		{target: "test", run: []string{"./c"}},
		{target: "etcd37", run: []string{"./a", "./d"}},
		{target: "integration", run: []string{"./e"}, skip: "nothing has changed"},
	}
	for of, want := range map[[2]string]string{
		{"./a", "TestA"}: "race", {"./b", "TestLong"}: "race", {"./a", "TestLong"}: "long", {"./c", "TestLong"}: "test",
		{"./a", "TestPart"}: "", {"./d", "TestA"}: "", {"./e", "TestA"}: "", {"./f", "TestA"}: "",
	} {
		require.Equal(t, want, wholeIn(steps, long, of[0], of[1]), of)
	}
}

// byShortChaos are rows of mutants that name a checker, and that the short form of the chaos suite notices.
var byShortChaos = regexp.MustCompile("(?m)^\\| `[a-z]\\d\\d+-[^`]+` \\| .* \\| \\d+ \\| yes \\|$")

// The gate runs whole each test that a mutant names. internal/proof/mutants.md says by which of its targets how many
// are noticed, and how many it does not notice.
func TestTestsOfMutants(t *testing.T) {
	t.Chdir("../../..")
	all := thisTree(t)
	long, err := shortenedOf(paths(all))
	require.NoError(t, err)
	steps := (&gate{}).plan(all, long, func(string) string { return "" })
	known, err := mutants.All()
	require.NoError(t, err)
	by, named := map[string]int{}, 0
	for _, m := range known {
		dir, test := cmp.Or(m.Package, m.Gate[0]), cmp.Or(m.Test, m.Gate[1])
		if test == "" {
			continue
		}
		of := wholeIn(steps, long, dir, test)
		require.NotEmpty(t, of, "%s: no target of the gate runs %s of %s whole", m.Name, test, dir)
		by[of]++
		named++
	}
	require.NotEmpty(t, wholeIn(steps, long, "./internal/proof/chaos", "TestChaos"))
	page, err := os.ReadFile("internal/proof/mutants.md")
	require.NoError(t, err)
	yes := len(byShortChaos.FindAllString(string(page), -1))
	var targets []string
	for _, of := range slices.Sorted(maps.Keys(by)) {
		targets = append(targets, fmt.Sprintf("`%s` %d", of, by[of]))
	}
	want := fmt.Sprintf("The gate notices %d of %d: %d by a test that it runs once and whole (%s), and %d by the short form of the chaos suite.",
		named+yes, len(known), named, strings.Join(targets, ", "), yes)
	require.True(t, strings.Contains(string(page), want), "internal/proof/mutants.md does not say: %s", want)
}

// A run is green if all of its steps have passed. It is written to the pages then, unless a test has
// passed only the second time.
func TestFinish(t *testing.T) {
	good, bad := outcome{step: step{target: "test"}, passed: true, seconds: 130}, outcome{step: step{target: "race"}}
	for name, tt := range map[string]struct {
		ended   []outcome
		tests   string
		passed  bool
		written bool
		says    string
	}{
		"green":       {[]outcome{good, good}, "", true, true, "\n2 passed, 0 failed\n"},
		"flaky":       {[]outcome{good, good}, "FLAKY a.TestX: once\nFLAKY a.TestX: once\n", true, false, "FLAKY a.TestX: once\n2 passed, 0 failed\n"},
		"red":         {[]outcome{good, bad}, "RED a.TestX: failed\n", false, false, "RED a.TestX: failed\nmake race FAILED\n1 passed, 1 failed\n"},
		"interrupted": {[]outcome{good}, "", false, false, "1 targets did not begin\n1 passed, 0 failed\n"},
		"not begun":   {nil, "", false, false, "2 targets did not begin\n0 passed, 0 failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(pageFile)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, pageFile), []byte(firstMark+lastMark), 0o600))
			t.Chdir(dir)
			var out bytes.Buffer
			g := &gate{dir: t.TempDir(), w: &out}
			require.NoError(t, os.WriteFile(g.tests(), []byte(tt.tests), 0o600))
			passed, err := g.finish(measured{}, tt.ended, 2)
			require.NoError(t, err)
			require.Equal(t, tt.passed, passed)
			require.True(t, strings.HasSuffix(out.String(), tt.says), out.String())
			page, err := os.ReadFile(pageFile)
			require.NoError(t, err)
			require.Equal(t, tt.written, strings.Contains(string(page), "| `test` | passed |"))
			report, err := os.ReadFile(reportFile)
			require.NoError(t, err)
			require.NotEmpty(t, report)
		})
	}
}
