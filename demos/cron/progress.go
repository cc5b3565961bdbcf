package main

import (
	"fmt"
	"time"
)

// progress is how far a run is.
func progress(l *log, jobs []job) string {
	first, until := jobs[0].First, jobs[0].Until
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
	return fmt.Sprintf("%4.1f of %.1f s, %d processes so far, %3d starts, %4d under a lock by name",
		min(max(0, time.Since(first)), until.Sub(first)).Seconds(), until.Sub(first).Seconds(), processes, starts, naive)
}
