package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options says how gate test runs go test.
type options struct {
	again    bool      // a package that fails runs once more, after the others
	order    bool      // "./..." is the packages with tests, in the order in which the last gate found them slow
	tests    string    // the file for the tests that are flaky or red, or none
	times    string    // the file for the times of packages, or none
	target   string    // the target's name in that file
	module   string    // whose packages are measured; defaults to ours
	progress io.Writer // shows how far the run is, or nil
}

// run runs go test, and, if o.again is set, each package that fails once more, after the others: a test
// that depends on how busy the machine is must not stop a good change. It is a defect all the same. The
// packages are the last arguments of the command; each begins with "./".
//
// The second run has the order of the first, and a bound of its own on time: a test that hangs would otherwise make a
// red run ten minutes longer, and show nothing by it.
//
// A package that does not build does not run again, nor one in which the race detector has found a
// data race, nor one that says of its failure that it is not a matter of time.
//
// The second run waits for the other packages of its target, not for other targets. Fewer tests run beside it
// than beside the first one, and about as many as in make test alone, which has to pass as well: a test that
// fails in both has a defect. Waiting for other targets would make each red run minutes longer.
//
// The end of ctx ends go test and all that it has started.
//
// It returns a line for each test that is flaky or red, and the packages that have failed.
func (o options) run(ctx context.Context, w io.Writer, command []string) (tests, red []string, err error) {
	command, packages := split(command)
	if len(command) == 0 || len(packages) == 0 {
		return nil, nil, errors.New(usage)
	}
	if o.order && slices.Equal(packages, []string{"./..."}) && !slices.Contains(command, "-C") { // of this module
		if o.progress != nil {
			fmt.Fprintln(o.progress, "gate: finds the packages, to begin with the slow ones")
		}
		if packages, err = ordered(ctx); err != nil {
			return nil, nil, err
		}
	}
	if flag := printing(command); flag != "" {
		red, err = o.plainly(ctx, w, flag, command, packages)
		return nil, red, err
	}
	results, err := o.test(ctx, w, command, packages)
	if err != nil {
		return nil, nil, err
	}
	for _, first := range results {
		for _, test := range first.skips {
			if o.again {
				fmt.Fprintln(w, "SKIP", test)
			}
		}
		if first.passed {
			continue
		}
		lines, failed, err := o.settle(ctx, w, command, first)
		if err != nil {
			return tests, red, err
		}
		if tests = append(tests, lines...); failed {
			red = append(red, first.pkg)
		}
	}
	for _, line := range tests {
		fmt.Fprintln(w, line)
	}
	return tests, red, nil
}

// settle decides whether a package that has failed is red, by a second run where that may show something else. It
// returns a line for each of its tests that is flaky or red.
func (o options) settle(ctx context.Context, w io.Writer, command []string, first *result) (tests []string, red bool, err error) {
	switch again, why := first.repeatable(); {
	case !o.again:
		return first.reds(""), true, nil
	case !again:
		fmt.Fprintf(w, "gate: %s is not run again: %s\n", first.pkg, why)
		return first.reds(""), true, nil
	}
	page, _ := os.ReadFile(pageFile)
	limit := first.secondLimit(ranFor(string(page), o.target, strings.TrimPrefix(first.pkg, ours+"/")))
	fmt.Fprintf(w, "gate: %s has failed and is run once more, for %s at most\n", first.pkg, limit)
	second, err := options{target: o.target}.test(ctx, w, bounded(limit, sameOrder(command, first.seed)), []string{first.pkg})
	switch {
	case err != nil:
		return nil, false, err
	case len(second) != 1:
		return first.reds(""), true, nil
	case !second[0].passed:
		return append(first.redsBut(second[0]), second[0].reds(" in its second run")...), true, nil
	}
	for _, name := range first.failures() {
		tests = append(tests, fmt.Sprintf("FLAKY %s: failed once, passed when its package ran again", name))
	}
	return tests, false, nil
}

// secondLimit bounds the second run of a package: three times what the first took until its last test ended, twice what the
// package ran for in the last gate, as a first run that crashed or hung at its beginning says nothing of the tests after
// it, and at least two minutes, which is longer than any single test.
func (p *result) secondLimit(before time.Duration) time.Duration {
	return max(2*time.Minute, 3*p.took, 2*before).Round(time.Second)
}

// bounded returns the command with a bound on each package's time, unless its own is shorter.
func bounded(limit time.Duration, command []string) []string {
	command = slices.Clone(command)
	i := slices.IndexFunc(command, func(arg string) bool { return strings.HasPrefix(arg, "-timeout=") })
	if i < 0 {
		return insert(command, []string{"-timeout=" + limit.String()})
	}
	own, err := time.ParseDuration(strings.TrimPrefix(command[i], "-timeout="))
	if err == nil && (own == 0 || own > limit) { // 0 is no bound
		command[i] = "-timeout=" + limit.String()
	}
	return command
}

// sameOrder returns the command with the order of tests that a run in random order has printed: in another order, a test
// that depends on those before it would pass as one that depends on time.
func sameOrder(command []string, seed string) []string {
	command = slices.Clone(command)
	if i := slices.Index(command, "-shuffle=on"); i >= 0 && seed != "" {
		command[i] = "-shuffle=" + seed
	}
	return command
}

// split separates the packages, which are last, from the command before them.
func split(args []string) (command, packages []string) {
	first := len(args)
	for first > 0 && (strings.HasPrefix(args[first-1], "./") || strings.HasPrefix(args[first-1], ours)) {
		first--
	}
	return args[:first], args[first:]
}

// ordered returns the packages with tests, slowest first.
func ordered(ctx context.Context) ([]string, error) {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return nil, err
	}
	all, err := tested(ctx)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, p := range all {
		paths = append(paths, p.path)
	}
	return slowestFirst(paths, slowestOf(string(page))), nil
}

// printing returns the flag by which the caller wants output of tests that pass as well, as go test prints
// it, or "".
func printing(command []string) (flag string) {
	i := slices.IndexFunc(command, func(arg string) bool {
		return arg == "-v" || arg == "-json" || strings.HasPrefix(arg, "-bench") || strings.HasPrefix(arg, "-fuzz")
	})
	if i < 0 {
		return ""
	}
	return command[i]
}

// plainly runs go test as it is, with a flag by which it prints its output itself. Which packages have
// failed is not known then: if one has, all of them are returned.
func (o options) plainly(ctx context.Context, w io.Writer, flag string, command, packages []string) (red []string, err error) {
	if o.progress != nil {
		fmt.Fprintf(o.progress, "gate: with %s the output is that of go test: no progress is shown, and no package runs again\n", flag)
	}
	cmd := exec.CommandContext(ctx, command[0], slices.Concat(command[1:], packages)...) //nolint:gosec // what the caller wants to be run
	whole(cmd, syscall.SIGKILL)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // 2 is a wrong use of go test
		return packages, nil
	}
	return nil, err
}

// test runs the command on packages, with -json after the word "test", and shows of its
// output what go test shows without -json.
func (o options) test(ctx context.Context, w io.Writer, command, packages []string) (_ []*result, err error) {
	flags := []string{"-json"}
	if o.times != "" {
		dir, err := os.MkdirTemp("", "gate-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		graph := filepath.Join(dir, "actions.json")
		flags = append(flags, "-debug-actiongraph="+graph)
		defer func() {
			if err == nil {
				err = o.appendTimes(graph)
			}
		}()
	}
	args := insert(command, flags)
	if len(args) == len(command) {
		return nil, fmt.Errorf("%q is no go test", command)
	}
	far := o.follow(command, packages)
	defer far.stop()
	args = append(args, packages...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // what the caller wants to be run
	whole(cmd, syscall.SIGKILL)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := read(w, out, far)
	exit := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("go test was ended: %w", context.Cause(ctx))
	case err != nil:
		return nil, err
	case len(results) < len(packages) || len(results) == 0:
		return nil, fmt.Errorf("go test reported %d packages, of %d or more: %w", len(results), len(packages), errors.Join(exit))
	case exit != nil && !anyFailed(results):
		return nil, fmt.Errorf("go test failed, but no package did: %w", exit)
	}
	return results, nil
}

// insert returns the command with flags after its word "test", or as it is if it has none.
func insert(command, flags []string) (args []string) {
	for i, arg := range command {
		if arg == "test" {
			args = append(append(args, command[:i+1]...), flags...)
			return append(args, command[i+1:]...)
		}
	}
	return command
}

func anyFailed(results []*result) bool {
	for _, r := range results {
		if !r.passed {
			return true
		}
	}
	return false
}

func appendTo(file string, lines []string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(f, line); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
