package main

import (
	"fmt"
	"os"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
)

// showProgress prints the progress of the run until quiet is called: on a terminal in one line that is
// overwritten, otherwise in a line every few seconds.
func showProgress(out *os.File, l *log, jobs []job) (quiet func()) {
	live := child.IsTerminal(out)
	every := 5 * time.Second
	if live {
		every = 100 * time.Millisecond
	}
	first, until := jobs[0].First, jobs[0].Until
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
			var starts, naive, processes int
			for _, e := range l.all() {
				switch {
				case e.Kind == evReady:
					processes++
				case e.Kind == evBegin && e.Way == bySchedlock:
					starts++
				case e.Kind == evBegin:
					naive++
				}
			}
			line := fmt.Sprintf("%4.1f of %.1f s, %d processes so far, %3d starts, %4d under a lock by name",
				min(max(0, time.Since(first)), until.Sub(first)).Seconds(), until.Sub(first).Seconds(), processes, starts, naive)
			if live {
				fmt.Fprint(out, "\r\033[K", line)
			} else {
				fmt.Fprintln(out, line)
			}
		}
	}()
	return func() { close(halt); <-done }
}
