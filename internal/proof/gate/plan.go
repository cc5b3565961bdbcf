package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A step is one target of the Makefile, as the gate runs it.
type step struct {
	target string
	name   string   // in reports, in place of the target and the flags
	flags  string   // for go test
	args   []string // for make
	run    []string // the packages; none if they are the target's own
	out    []leftOut
	skip   string // why the whole step is left out, or ""
	waits  bool   // it uses little processor time
	vets   bool   // it compiles what steps that wait compile, too
}

// A result of a step.
type outcome struct {
	step
	passed  bool
	seconds float64
	own     float64 // seconds of processor time
	skipped bool    // tests for which this machine lacks something
}

// workers are how many steps run beside each other, and of which kind: while the tests of one wait, the
// other compiles; and one that mostly waits runs beside both.
var workers = []struct{ waits bool }{{false}, {false}, {true}}

// title is what reports call a step.
func (s step) title() string {
	return cmp.Or(s.name, strings.TrimSpace(s.target+" "+s.flags))
}

// plan lists the steps in the order in which they begin, the longest first. long are the tests of which
// -short leaves out all or a part.
func (g *gate) plan(all []pkg, long []shortened, changed func(what string) (reason string)) []step {
	chosen := func(target, flags string, args ...string) step {
		s := step{target: target, flags: flags, args: args}
		s.run, s.out = choose(target, all)
		s.run = slowestFirst(s.run, g.slow)
		return s
	}
	integration := step{target: "integration", flags: "-short", waits: true}
	if why := changed("browser"); why != "" {
		integration.flags, integration.out = "-short -skip="+browserTests, []leftOut{{"the tests in a browser, " + browserTests, why}}
	}
	race, etcd37 := chosen("race", "-short", "TESTTIMEOUT=15m"), chosen("etcd37", "-short") // make race has 30, for the long tests
	test, examples := chosen("test", "", "VETPKGS=").withoutExamples()
	if why := changed("alerts"); why != "" {
		test.flags, test.out = "-skip="+alertTests, append(test.out, leftOut{"promtool's tests of the alert rules, " + alertTests, why})
	}
	etcd37.args = []string{"VETPKGS=" + strings.Join(append(uncompiled(etcd37.out, all), g.bare...), " ")}
	return []step{
		race,
		{target: "vet", vets: true},
		test,
		g.long(race.run, long),
		etcd37,
		integration,
		examples,
		{target: "demos-test", skip: changed("demos"), waits: true},
		{target: "bench-test", flags: "-short", skip: changed("bench"), waits: true},
	}
}

// withoutExamples divides a step: most tests of examples wait for seconds and use little processor time.
func (s step) withoutExamples() (rest, examples step) {
	rest, examples = s, step{target: s.target, name: "examples", args: []string{"VETPKGS="}, waits: true}
	rest.run = nil
	for _, path := range s.run {
		if under(path, exampleRoots...) {
			examples.run = append(examples.run, path)
		} else {
			rest.run = append(rest.run, path)
		}
	}
	return rest, examples
}

// uncompiled are the packages that a step leaves out although another etcd could keep them from compiling.
func uncompiled(out []leftOut, all []pkg) (list []string) {
	for _, l := range out {
		if slices.ContainsFunc(all, func(p pkg) bool { return p.path == l.path && p.etcd }) {
			list = append(list, l.path)
		}
	}
	return list
}

// long is the step that runs whole what -short leaves out of the packages of another step.
func (g *gate) long(packages []string, long []shortened) step {
	s := step{target: "test", name: "long", args: []string{"VETPKGS="}}
	var names []string
	for _, t := range long {
		if strings.HasPrefix(t.test, "Test") && slices.Contains(packages, t.dir) {
			s.run, names = append(s.run, t.dir), append(names, t.test)
		}
	}
	s.run = slowestFirst(slices.Compact(slices.Sorted(slices.Values(s.run))), g.slow)
	s.flags = "'-run=^(" + strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), "|") + ")$$'" // for make and its shell
	return s
}

const (
	browserTests = "^TestConsole"      // those of integration that open the console in a browser
	alertTests   = "TestRulesOfAlerts" // that of internal/proof/signals that has promtool run the tests of alert rules
)

// gate is one run of all targets.
type gate struct {
	dir  string   // for what its steps write
	self string   // this program
	slow []string // the packages that were slowest in the last run, slowest first
	bare []string // the programs without tests that link etcd

	tested map[string]string // the commits at which subjects were last tested

	print sync.Mutex
	w     io.Writer
}

// do runs one step, and prints what it has printed when it has ended.
func (g *gate) do(ctx context.Context, s step) outcome {
	if s.skip != "" {
		g.say("== make %s is left out: %s\n", s.target, s.skip)
		return outcome{step: s, passed: true}
	}
	begun := time.Now()
	args := append([]string{s.target, "TESTFLAGS=" + s.flags, fmt.Sprintf("PACKAGES=%d", max(2, runtime.NumCPU()))}, s.args...)
	if s.run != nil {
		args = append(args, "PKGS="+strings.Join(s.run, " "))
	}
	fmt.Fprintf(os.Stderr, "== make %s begins\n", s.title())
	cmd := exec.CommandContext(ctx, "make", args...) //nolint:gosec // a target of ours
	cmd.Env = append(os.Environ(), "RERUN="+strings.Join([]string{g.self, "test", "-again", "-tests", g.tests(), "-times", g.times(), "-target", cmp.Or(s.name, s.target)}, " "))
	whole(cmd, syscall.SIGTERM)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	o := outcome{step: s, passed: err == nil, seconds: time.Since(begun).Seconds()}
	if used := cmd.ProcessState; used != nil {
		o.own = (used.UserTime() + used.SystemTime()).Seconds()
	}
	o.skipped = lacked.Match(out.Bytes())
	verdict := "passed"
	if !o.passed {
		verdict = "FAILED"
	}
	g.print.Lock()
	defer g.print.Unlock()
	_, _ = g.w.Write(out.Bytes())
	for _, l := range s.out {
		fmt.Fprintf(g.w, "== make %s leaves out %s: %s\n", s.target, l.path, l.why)
	}
	if err := s.printParts(g.w); err != nil {
		fmt.Fprintln(g.w, "gate:", err)
	}
	fmt.Fprintf(g.w, "== make %s %s in %.0f s\n", s.title(), verdict, o.seconds)
	return o
}

// lacked finds tests that were skipped since the machine lacks a tool, or the time for them.
var lacked = regexp.MustCompile(`(?m)^SKIP (integration\.TestConsoleInABrowser|.*: (\S+ is not installed|no redis-server in PATH|(the|this) machine is too busy))`)

// printParts lists the tests of which the step leaves out a part.
func (s step) printParts(w io.Writer) (err error) {
	if !strings.HasPrefix(s.flags, "-short") {
		return nil
	}
	dirs := s.run
	if dirs == nil { // a module of its own
		if dirs, err = foldersOf(strings.TrimSuffix(s.target, "-test")); err != nil {
			return err
		}
	}
	return printParts(w, dirs)
}

func (g *gate) say(format string, args ...any) {
	g.print.Lock()
	defer g.print.Unlock()
	fmt.Fprintf(g.w, format, args...)
}

func (g *gate) tests() string { return filepath.Join(g.dir, "tests") }
func (g *gate) times() string { return filepath.Join(g.dir, "times") }

// runAll runs the gate in the working directory, the root of the tree. After a step that has failed no
// other begins.
func runAll(ctx context.Context) (passed bool, err error) {
	g := &gate{w: os.Stdout}
	if g.dir, err = os.MkdirTemp("", "gate-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(g.dir)
	if g.self, err = os.Executable(); err != nil {
		return false, err
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return false, err
	}
	g.slow = slowestOf(string(page))
	list, err := listed(ctx)
	if err != nil {
		return false, err
	}
	all := testedOf(list)
	g.bare = untestedOf(list)
	long, err := shortenedOf(paths(all))
	if err != nil {
		return false, err
	}
	m := measure()
	g.tested = testedAt(string(page))
	steps := g.plan(all, long, changes{last: g.tested}.reason)
	ended := inTurn(ctx, steps, func(s step) outcome { return g.do(ctx, s) })
	return g.finish(m.end(), ended, len(steps))
}

// inTurn does steps in their order, each by a worker of its kind. Those that wait begin when the one that vets has
// ended: go compiles a package twice if two commands need it at once. After a step that has failed no other begins,
// nor after the end of ctx.
func inTurn(ctx context.Context, steps []step, do func(step) outcome) (ended []outcome) {
	vetted, vet := context.WithCancel(ctx)
	defer vet()
	if !slices.ContainsFunc(steps, func(s step) bool { return s.vets }) {
		vet()
	}
	var mu sync.Mutex
	failed := false
	left := slices.Clone(steps)
	next := func(waits bool) (s step, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		i := slices.IndexFunc(left, func(s step) bool { return s.waits == waits })
		if failed || ctx.Err() != nil || i < 0 {
			return step{}, false
		}
		s = left[i]
		left = slices.Delete(left, i, i+1)
		return s, true
	}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			defer vet() // also if the step that vets has not begun
			if w.waits {
				<-vetted.Done()
			}
			for s, ok := next(w.waits); ok; s, ok = next(w.waits) {
				o := do(s)
				mu.Lock()
				ended, failed = append(ended, o), failed || !o.passed
				mu.Unlock()
				if s.vets {
					vet() // not before failed is set
				}
			}
		})
	}
	all.Wait()
	return ended
}

// finish prints the report of a run of so many steps, and writes it to the page if all of them have
// passed, and no test only the second time.
func (g *gate) finish(m measured, ended []outcome, steps int) (passed bool, err error) {
	lines, _ := os.ReadFile(g.tests())
	tests := slices.Compact(slices.Sorted(strings.Lines(string(lines)))) // first the flaky ones, then the red ones
	flaky := slices.ContainsFunc(tests, func(line string) bool { return strings.HasPrefix(line, "FLAKY ") })
	all, err := readTimes(g.times())
	if err != nil && !os.IsNotExist(err) {
		return false, err
	}
	r := report{measured: m, ended: ended, times: all, commit: commit()}
	r.tested = r.testedNow(g.tested)
	bad := slices.DeleteFunc(slices.Clone(ended), func(o outcome) bool { return o.passed })
	if err := os.MkdirAll("bin", 0o755); err != nil { //nolint:gosec // a folder of the tree
		return false, err
	}
	if err := os.WriteFile(reportFile, []byte(r.markdown()), 0o644); err != nil { //nolint:gosec // to be read
		return false, err
	}
	fmt.Fprint(g.w, r.markdown(), strings.Join(tests, ""))
	passed = len(bad) == 0 && len(ended) == steps
	if passed && !flaky {
		if err := r.writePage(); err != nil {
			return false, err
		}
	}
	for _, o := range bad {
		fmt.Fprintf(g.w, "make %s FAILED\n", cmp.Or(o.name, o.target))
	}
	if left := steps - len(ended); left > 0 {
		fmt.Fprintf(g.w, "%d targets did not begin\n", left)
	}
	for _, o := range ended {
		if o.skip != "" {
			fmt.Fprintf(g.w, "make %s was left out\n", o.target)
		}
	}
	fmt.Fprintf(g.w, "%d passed, %d failed\n", len(slices.DeleteFunc(slices.Clone(ended), func(o outcome) bool { return !o.passed || o.skip != "" })), len(bad))
	return passed, nil
}
