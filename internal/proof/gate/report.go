package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The report of a run is a table of its targets and one of its slowest packages. A green run writes
// it to the page, between two marks, so that no figure there is written by hand.

const (
	pageFile   = "internal/proof/testing.md"
	reportFile = "bin/gate.md"
	firstMark  = "<!-- last gate -->\n"
	lastMark   = "<!-- end of last gate -->\n"
	slowest    = 20
)

// measured is what a run cost the machine.
type measured struct {
	begun   time.Time
	seconds float64
	peak    int64   // bytes, or 0 if it is not known
	own     float64 // seconds of processor time, of the run
	busy    float64 // of all processes meanwhile, or 0 if it is not known
}

type report struct {
	measured
	commit string
	ended  []outcome
	times  []times
	tested map[string]string // the commits at which subjects were last tested
}

// markdown is the report as it is printed and shown on the page.
func (r report) markdown() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s, on %d processors with %s: **%.0f s**", r.begun.UTC().Format("2006-01-02 15:04"), r.commit, runtime.NumCPU(), runtime.Version(), r.seconds)
	fmt.Fprintf(&b, ", %.0f s of processor time", r.own)
	if others := r.busy - r.own; r.busy > 0 {
		fmt.Fprintf(&b, " beside %.0f s of other processes", max(0, others))
	}
	if r.peak > 0 {
		fmt.Fprintf(&b, ", at most %.1f GiB of memory", float64(r.peak)/(1<<30))
	}
	fmt.Fprint(&b, ".\n\n| target | result | seconds | processor | packages | left out |\n|---|---|---:|---:|---:|---:|\n")
	for _, o := range r.ended {
		result := "passed"
		switch {
		case o.skip != "":
			result = "left out: " + o.skip
		case !o.passed:
			result = "FAILED"
		}
		n := 0
		for _, t := range r.times {
			if t.Target == cmp.Or(o.name, o.target) && t.Run > 0 {
				n++
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %.0f | %.0f | %d | %d |\n", o.title(), result, o.seconds, o.own, n, len(o.out))
	}
	var at []string
	for _, name := range slices.Sorted(maps.Keys(r.tested)) {
		at = append(at, name+" at "+r.tested[name])
	}
	if at != nil {
		fmt.Fprintf(&b, "\nLast tested: %s.\n", strings.Join(at, ", "))
	}
	fmt.Fprint(&b, "\n| slowest packages | target | build | link | run |\n|---|---|---:|---:|---:|\n")
	for _, t := range r.slowest() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %.1f | %.1f | %.1f |\n", t.Package, t.Target, t.Build, t.Link, t.Run)
	}
	return b.String()
}

func (r report) slowest() []times {
	all := slices.Clone(r.times)
	slices.SortStableFunc(all, func(a, b times) int { return cmp.Compare(b.sum(), a.sum()) })
	return all[:min(slowest, len(all))]
}

var slowRow = regexp.MustCompile("(?m)^\\| `([\\w./-]+)` \\| `([\\w-]+)` \\| [\\d.]+ \\| [\\d.]+ \\| ([\\d.]+) \\|$")

// slowestOf returns the packages of the slowest rows of a page, slowest first.
func slowestOf(page string) (paths []string) {
	for _, m := range slowRow.FindAllStringSubmatch(page, -1) {
		if !slices.Contains(paths, m[1]) {
			paths = append(paths, m[1])
		}
	}
	return paths
}

// ranFor returns how long the tests of a package ran in a target by a page, or 0 if it is none of the slowest there.
func ranFor(page, target, pkg string) time.Duration {
	for _, m := range slowRow.FindAllStringSubmatch(page, -1) {
		if m[1] == pkg && m[2] == target {
			seconds, _ := strconv.ParseFloat(m[3], 64)
			return time.Duration(seconds * float64(time.Second))
		}
	}
	return 0
}

var testedLine = regexp.MustCompile(`(?m)^Last tested: (\w+ at \w+(?:, \w+ at \w+)*)\.$`)

// testedAt returns the commits of a page at which subjects were last tested.
func testedAt(page string) map[string]string {
	at := map[string]string{}
	if m := testedLine.FindStringSubmatch(page); m != nil {
		for one := range strings.SplitSeq(m[1], ", ") {
			if name, commit, _ := strings.Cut(one, " at "); subjects[name].target != "" && commit != "none" {
				at[name] = commit
			}
		}
	}
	return at
}

// testedNow is testedAt after this run. A subject that was left out, or for whose tests the machine
// lacks something, keeps its commit; so it does if the tree is none of a commit.
func (r report) testedNow(before map[string]string) map[string]string {
	at := maps.Clone(before)
	for _, o := range r.ended {
		name := map[string]string{"bench-test": "bench", "demos-test": "demos", "integration": "browser", "test": "alerts"}[cmp.Or(o.name, o.target)]
		left := o.skip != "" || strings.Contains(o.flags, "-skip=") || o.skipped
		if name != "" && o.passed && !left && !strings.Contains(r.commit, " ") {
			at[name] = r.commit
		}
	}
	return at
}

// commit names the commit of the tree, and says if the tree is another one.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "no commit"
	}
	name := strings.TrimSpace(string(out))
	if out, err := exec.Command("git", "status", "--porcelain").Output(); err != nil || len(out) > 0 {
		name += " and changes"
	}
	return name
}

// writePage puts a report between the marks of the page.
func (r report) writePage() error {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	changed, err := between(string(page), r.markdown())
	if err != nil {
		return err
	}
	return os.WriteFile(pageFile, []byte(changed), 0o644) //nolint:gosec // a page of the tree
}

func between(page, text string) (string, error) {
	before, rest, ok := strings.Cut(page, firstMark)
	_, after, also := strings.Cut(rest, lastMark)
	if !ok || !also {
		return "", errors.New(pageFile + " has no marks for the last gate")
	}
	return before + firstMark + text + lastMark + after, nil
}
