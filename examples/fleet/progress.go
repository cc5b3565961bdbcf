package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/etcdkit/etcdkit/examples/internal/child"
)

// showProgress tells how the run goes until stop is called: in one line that is
// written over on a terminal, else in a line every few seconds.
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
				writeProgress(out, c, h.scene(), time.Since(begun), live)
			}
		}
	}()
	return func() { close(halt); <-done }
}

func writeProgress(out io.Writer, c config, s scene, elapsed time.Duration, live bool) {
	line := fmt.Sprintf("%3d of %d succeeded, %d hold, %2d wait, %2d killed, %4.1f s", s.succeeded, c.executions, s.holding, s.waiting, s.killed, elapsed.Seconds())
	if live {
		fmt.Fprint(out, "\r\033[K", line)
		return
	}
	fmt.Fprintln(out, line)
}
