package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string // of build-output
	Test        string
	Output      string
	FailedBuild string
}

// Veto is what a test prints whose failure no second run can excuse, such as a broken rule
// that the checkers have found in a run made up by chance.
const Veto = "not a matter of time"

// result is what go test has reported of one package.
type result struct {
	pkg    string
	passed bool
	built  bool
	raced  bool
	vetoed bool
	lines  []event
	begun  []string // tests and subtests that have not ended
	failed []string // those that have failed
	hung   []string // those that ran when the package's time was over
	limit  string   // that time, or ""
	listed bool     // the tests of hung are being listed
	from   time.Time
	took   time.Duration // until its last test ended
	skips  []string      // tests that were skipped, each with its reason
	seed   string        // of the random order in which the tests ran, or ""
}

// read takes the events of a run, and writes each package's output when the package has
// ended. The results are in the order in which packages ended.
func read(w io.Writer, r io.Reader, far *progress) ([]*result, error) {
	var ended []*result
	running := map[string]*result{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var ev event
			if json.Unmarshal(line, &ev) != nil {
				fmt.Fprintf(w, "%s", line) // of the go command itself
			} else if done := take(w, running, ev); done != nil {
				ended = append(ended, done)
				far.clear()
				done.print(w)
				far.ended(done.pkg)
			} else {
				far.started(ev)
			}
		}
		if errors.Is(err, io.EOF) {
			if len(running) > 0 {
				return nil, fmt.Errorf("go test ended before %s", strings.Join(slices.Sorted(maps.Keys(running)), ", "))
			}
			return ended, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// take adds an event to its package, and returns the package if it has ended with it.
func take(w io.Writer, running map[string]*result, ev event) *result {
	if ev.Package == "" {
		fmt.Fprint(w, ev.Output) // of the compiler
		return nil
	}
	p := running[ev.Package]
	if p == nil {
		p = &result{pkg: ev.Package, built: true, from: ev.Time}
		running[ev.Package] = p
	}
	switch {
	case ev.Action == "run":
		p.begun = append(p.begun, ev.Test)
	case ev.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, ev.Action):
		p.begun = slices.DeleteFunc(p.begun, func(test string) bool { return test == ev.Test })
		p.took = ev.Time.Sub(p.from)
	}
	switch {
	case ev.Action == "output":
		p.lines = append(p.lines, ev)
		if seed, ok := strings.CutPrefix(ev.Output, "-test.shuffle "); ok && ev.Test == "" {
			p.seed = strings.TrimSpace(seed)
		}
		p.raced = p.raced || strings.Contains(ev.Output, "WARNING: DATA RACE")
		p.vetoed = p.vetoed || strings.Contains(ev.Output, Veto)
		p.overtime(strings.TrimSuffix(ev.Output, "\n"))
	case ev.Action == "fail" && ev.Test != "":
		p.failed = append(p.failed, ev.Test)
	case ev.Action == "skip" && ev.Test != "":
		p.skips = append(p.skips, fmt.Sprintf("%s.%s: %s", p.name(), ev.Test, p.reason(ev.Test)))
	case ev.Test != "":
	case ev.Action == "pass", ev.Action == "skip", ev.Action == "fail":
		p.passed = ev.Action != "fail"
		p.built = ev.FailedBuild == ""
		delete(running, ev.Package)
		return p
	}
	return nil
}

// overtime takes a line of what go test says when the time of a package is over: "panic: test timed out after 10m0s",
// "running tests:" with a line for each, and the stacks. Those that wait for their turn are not among them.
func (p *result) overtime(line string) {
	if limit, ok := strings.CutPrefix(line, "panic: test timed out after "); ok {
		p.limit = limit
	}
	name, _, ok := strings.Cut(strings.TrimPrefix(line, "\t\t"), " (")
	switch {
	case p.limit != "" && line == "\trunning tests:":
		p.listed = true
	case p.listed && ok && strings.HasPrefix(line, "\t\t"):
		p.hung = append(p.hung, name)
	default:
		p.listed = false
	}
}

// print writes the package's own lines and those of the tests that have failed, as go test
// does without -json. What a process writes at its end is attributed to a test that runs.
func (p *result) print(w io.Writer) {
	shown := p.failed
	if !p.passed {
		shown = slices.Concat(p.failed, p.begun)
	}
	for _, l := range p.lines {
		chatter := l.Output == "PASS\n" || strings.HasPrefix(l.Output, "=== ")
		if !chatter && (l.Test == "" || slices.Contains(shown, l.Test)) {
			fmt.Fprint(w, l.Output)
		}
	}
	p.lines = nil
}

// repeatable reports whether a second run may show something else than the first, and if
// not, why.
func (p *result) repeatable() (ok bool, why string) {
	switch {
	case !p.built:
		return false, "it does not build"
	case p.raced:
		return false, "it has a data race"
	case p.vetoed:
		return false, "what it has found is " + Veto
	}
	return true, ""
}

// name is the last part of the package's path.
func (p *result) name() string { return p.pkg[strings.LastIndex(p.pkg, "/")+1:] }

var place = regexp.MustCompile(`^ +[\w.-]+\.go:\d+: `)

// reason returns the last line that a test has logged, which is why it was skipped.
func (p *result) reason(test string) string {
	for _, l := range slices.Backward(p.lines) {
		if at := place.FindString(l.Output); l.Test == test && at != "" {
			return strings.TrimSpace(l.Output[len(at):])
		}
	}
	return "no reason"
}

// failures returns the names of the tests that have failed, or had not ended when the package did, or that of the package
// if there are none: it may have leaked goroutines, or have crashed.
func (p *result) failures() []string {
	open := p.begun
	if p.limit != "" {
		open = p.hung // begun has those that wait for their turn as well
	}
	bad := slices.Concat(p.failed, open)
	var names []string
	for _, test := range bad {
		parent := slices.ContainsFunc(bad, func(other string) bool { return strings.HasPrefix(other, test+"/") })
		if !parent {
			names = append(names, p.name()+"."+test)
		}
	}
	if len(names) == 0 {
		names = []string{p.pkg}
	}
	return names
}

// reds are lines that name each failure, and say whether it was the end of the package's time.
func (p *result) reds(times string) (lines []string) {
	for _, name := range p.failures() {
		lines = append(lines, p.red(name, times))
	}
	return lines
}

// redsBut are the lines of a first run without those that a second one names anew.
func (p *result) redsBut(second *result) (lines []string) {
	named := second.failures()
	for _, name := range p.failures() {
		if !slices.Contains(named, name) {
			lines = append(lines, p.red(name, " in its first run"))
		}
	}
	return lines
}

func (p *result) red(name, times string) string {
	how := "failed" + times
	if slices.Contains(p.hung, strings.TrimPrefix(name, p.name()+".")) {
		how = fmt.Sprintf("had not ended when its package's time was over, after %s%s", p.limit, times)
	}
	return fmt.Sprintf("RED %s: %s", name, how)
}
