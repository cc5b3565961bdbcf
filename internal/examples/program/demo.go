package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Outcome is what a demo has found out.
type Outcome interface {
	Passed() bool
	Write(out io.Writer)
}

// Demo is the body of main of a program with flags of its own, which starts processes and judges
// what they did: it parses the flags, runs the program with a context that ends on Ctrl-C and
// SIGTERM, and writes the outcome to standard output. The exit status is 0 only if the outcome is a good one,
// 2 for wrong flags, and 130 if the program was interrupted. Run must end its processes before it returns.
func Demo[Config any, Result Outcome](name string, parse func(args []string, out io.Writer) (Config, error), run func(ctx context.Context, c Config, progress io.Writer) (Result, error)) {
	c, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := run(ctx, c, os.Stderr)
	ok := err == nil && o.Passed()
	if err == nil {
		o.Write(os.Stdout)
	}
	interrupted := ctx.Err() != nil
	cancel()
	switch {
	case interrupted:
		fmt.Fprintf(os.Stderr, "%s: interrupted; all processes have ended\n", name)
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}
