// Rerun runs go test, and runs each package that fails once more, alone. What passes then
// is reported as flaky and does not fail the run: a test that depends on how busy the
// machine is must not hold up a change that is good. It is a defect all the same.
//
//	go run ./internal/proof/rerun -flaky flaky.txt go test -race -short ./...
//
// The packages are the last arguments; each begins with "./". There is no second run of a
// package that does not build, in which the race detector has found a data race, or that
// says of its failure that it is not a matter of time. The exit status is 0 if every package has passed, at the latest the
// second time, 1 if one has not, and 2 if go test could not be run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	file := flag.String("flaky", "", "append a line for each flaky test to this file")
	flag.Parse()
	flaky, red, err := run(os.Stdout, flag.Args())
	if err == nil && *file != "" {
		err = appendTo(*file, flaky)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "rerun:", err)
		os.Exit(2)
	case len(red) > 0:
		os.Exit(1)
	}
}

// run returns a line for each flaky test and the packages that have failed.
func run(w io.Writer, command []string) (flaky, red []string, err error) {
	command, packages := split(command)
	if len(command) == 0 || len(packages) == 0 {
		return nil, nil, errors.New("use: rerun [-flaky file] go test [flag ...] ./package ... (one package or more)")
	}
	results, err := test(w, command, packages)
	if err != nil {
		return nil, nil, err
	}
	for _, first := range results {
		switch again, why := first.repeatable(); {
		case first.passed:
		case !again:
			fmt.Fprintf(w, "rerun: %s is not run again: %s\n", first.pkg, why)
			red = append(red, first.pkg)
		default:
			fmt.Fprintf(w, "rerun: %s has failed and is run once more, alone\n", first.pkg)
			second, err := test(w, command, []string{first.pkg})
			if err != nil {
				return flaky, red, err
			}
			if len(second) != 1 || !second[0].passed {
				red = append(red, first.pkg)
				continue
			}
			for _, name := range first.failures() {
				flaky = append(flaky, fmt.Sprintf("FLAKY %s: failed once, passed when its package ran alone", name))
			}
		}
	}
	for _, line := range flaky {
		fmt.Fprintln(w, line)
	}
	return flaky, red, nil
}

// split separates the packages, which are last, from the command before them.
func split(args []string) (command, packages []string) {
	first := len(args)
	for first > 0 && strings.HasPrefix(args[first-1], "./") {
		first--
	}
	return args[:first], args[first:]
}

// test runs the command on packages, with -json after the word "test", and shows of its
// output what go test shows without -json.
func test(w io.Writer, command, packages []string) ([]*result, error) {
	var args []string
	for i, arg := range command {
		args = append(args, arg)
		if arg == "test" {
			args = append(append(append(args, "-json"), command[i+1:]...), packages...)
			break
		}
	}
	if len(args) <= len(command) {
		return nil, fmt.Errorf("%q is no go test", command)
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec // what the caller wants to be run
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := read(w, out)
	exit := cmd.Wait()
	switch {
	case err != nil:
		return nil, err
	case len(results) == 0:
		return nil, fmt.Errorf("go test reported no package: %w", errors.Join(exit))
	case exit != nil && !anyFailed(results):
		return nil, fmt.Errorf("go test failed, but no package did: %w", exit)
	}
	return results, nil
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
