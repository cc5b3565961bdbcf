// Gate runs what a change has to pass before it lands, and measures it.
//
//	gate run                        all targets of the gate, as .ci/run calls it
//	gate test [flag ...] go test …  one go test, with its progress, its times and a second try
//	gate left-out                   what each target of the gate leaves out, and why
//	gate each [flag ...] ./package  each test alone, and the slowest of them
//
// What a target leaves out cannot differ there, or runs in make verify: see choose.go. A package
// that fails runs once more, after the others; if it passes then, the run passes, and its tests are reported
// as flaky: see again.go. The times of a run are on the page internal/proof/testing.md, which the run writes:
// see report.go.
//
// The exit status is 0 if everything has passed, at the latest the second time, 1 if something has
// not, and 2 if a command could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, err := command(ctx, os.Args[1], os.Args[2:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(2)
	case !passed:
		os.Exit(1)
	}
}

const usage = "gate: use: gate run, gate left-out, gate each [-race] [-short] [-n 50] PACKAGES, or gate test [-again] [-order] [-tests FILE] [-times FILE] [-target NAME] go test [flag ...] PACKAGES"

func command(ctx context.Context, name string, args []string) (passed bool, err error) {
	switch name {
	case "run":
		return runAll(ctx)
	case "left-out":
		all, err := tested(ctx)
		if err != nil {
			return false, err
		}
		whole, err := wholeSubjects()
		if err != nil {
			return false, err
		}
		return true, printLeftOut(os.Stdout, all, whole)
	case "each":
		return each(ctx, os.Stdout, args)
	case "test":
		var o options
		flags := flag.NewFlagSet("gate test", flag.ContinueOnError)
		flags.BoolVar(&o.again, "again", false, "run a package that has failed once more, after the others")
		flags.BoolVar(&o.order, "order", false, "test the packages of ./... that were slow in the last gate first")
		flags.StringVar(&o.tests, "tests", "", "append a line for each test that is flaky or red to this file")
		flags.StringVar(&o.times, "times", "", "append the times of each package to this file")
		flags.StringVar(&o.target, "target", "", "the target's name in that file")
		if err := flags.Parse(args); err != nil {
			return false, err
		}
		o.progress = progressOn(os.Stderr)
		tests, red, err := o.run(ctx, os.Stdout, flags.Args())
		if err == nil && o.tests != "" {
			err = appendTo(o.tests, tests)
		}
		return len(red) == 0, err
	}
	return false, errors.New(usage)
}
