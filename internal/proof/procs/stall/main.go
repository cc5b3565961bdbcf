// Stall runs a test binary as on a machine that stalls now and then: its process is stopped
// and continued all the time. Tests whose bounds are too tight for a busy machine
// fail here within minutes.
//
//	go test -exec "$PWD/bin/stall -longest 1s" ./...
//
// Signals are passed on, and the exit status is that of the binary; 2 if there was none.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

func main() {
	longest := flag.Duration("longest", time.Second, "how long a standstill lasts at most; at least a third of it")
	every := flag.Duration("every", 2*time.Second, "how long it runs between two, on average")
	flag.Parse()
	if flag.NArg() == 0 || *longest < 3 || *every < 1 {
		fmt.Fprintln(os.Stderr, "stall: use: stall [-longest 1s] [-every 2s] binary [argument ...]")
		os.Exit(2)
	}
	status, err := run(flag.Args(), *longest, *every)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stall:", err)
	}
	os.Exit(status)
}

func run(args []string, longest, every time.Duration) (status int, err error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec // what the caller wants to be run
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	next := time.NewTimer(rand.N(2 * every))
	defer next.Stop()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case <-next.C:
			if err := procs.Stop(cmd.Process); errors.Is(err, errors.ErrUnsupported) {
				_ = cmd.Process.Kill()
				return 2, err
			}
			time.Sleep(longest/3 + rand.N(longest*2/3))
			_ = procs.Continue(cmd.Process)
			next.Reset(rand.N(2 * every))
		case err := <-ended:
			if status := cmd.ProcessState.ExitCode(); status >= 0 {
				return status, nil
			}
			return 1, err // killed
		}
	}
}
