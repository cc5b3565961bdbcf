package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
)

// showProgress prints the progress of the run until stop is called: on a terminal in one line
// that is overwritten, otherwise one line every three seconds.
func showProgress(out *os.File, c config, h *history) (stop func()) {
	live := child.IsTerminal(out)
	every := 3 * time.Second
	if live {
		every = 100 * time.Millisecond
	}
	begun := time.Now()
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
				writeProgress(out, c, h.progress(), time.Since(begun), live)
			}
		}
	}()
	return func() { close(halt); <-done }
}

func writeProgress(out io.Writer, c config, s progress, elapsed time.Duration, live bool) {
	line := fmt.Sprintf("%3d of %d succeeded, %d holding, %2d waiting, %2d killed, %4.1f s", s.succeeded, c.executions, s.holding, s.waiting, s.killed, elapsed.Seconds())
	if live {
		fmt.Fprint(out, "\r\033[K", line)
		return
	}
	fmt.Fprintln(out, line)
}
