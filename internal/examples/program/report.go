package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
)

// shown is the number of violations that are printed.
const shown = 5

// WriteVerdict prints how long a run took and the first violations, and then what was kept if there are none.
// remarks come before the verdict.
func WriteVerdict(out io.Writer, elapsed float64, violations []string, kept string, remarks ...string) {
	fmt.Fprintf(out, "\nelapsed %.1f s\n", elapsed)
	for _, v := range violations[:min(shown, len(violations))] {
		fmt.Fprintln(out, " ", v)
	}
	if more := len(violations) - shown; more > 0 {
		fmt.Fprintf(out, "  and %d more\n", more)
	}
	for _, r := range remarks {
		fmt.Fprintln(out, " ", r)
	}
	if len(violations) > 0 {
		kept = "FAILED."
	}
	fmt.Fprintln(out, kept)
}

// ShowProgress prints a line, again and again until quiet is called: on a terminal in one line that is
// overwritten, otherwise in a new line every few seconds.
func ShowProgress(out *os.File, every time.Duration, line func() string) (quiet func()) {
	live := child.IsTerminal(out)
	if live {
		every = 100 * time.Millisecond
	}
	halt, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-halt:
				if live {
					fmt.Fprint(out, "\r\033[K")
				}
				return
			case <-tick.C:
			}
			if live {
				fmt.Fprint(out, "\r\033[K", line())
			} else {
				fmt.Fprintln(out, line())
			}
		}
	}()
	return func() { close(halt); <-done }
}

// Each calls f for 0 to n-1, all at the same time, and returns the errors.
func Each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
