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

// Demo is the body of main of a program with flags of its own, which starts processes and judges
// what they did: it parses the flags, and runs the program with a context that ends on Ctrl-C and
// SIGTERM. The exit status is 0 only if run returns true, 2 for wrong flags, and 130 if the program
// was interrupted. Run must end its processes before it returns.
func Demo[Config any](name string, parse func(args []string, out io.Writer) (Config, error), run func(context.Context, Config) (ok bool, err error)) {
	c, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, c)
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
