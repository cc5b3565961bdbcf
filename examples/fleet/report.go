package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// report is the result of a run: the table, and the last line of the output as JSON.
type report struct {
	OK         bool           `json:"ok"`
	Limit      int            `json:"limit"`
	Executions int            `json:"executions"`
	Succeeded  int            `json:"succeeded"`
	Workers    int            `json:"workers"`
	Attempts   int            `json:"attempts"`
	Ends       map[ending]int `json:"ends"`
	Peak       int            `json:"peak"`
	Violations int            `json:"violations"`
	First      []string       `json:"first_violations,omitempty"`
	Unplanned  []string       `json:"unplanned_ends,omitempty"`
	LateSteps  int            `json:"late_steps"`
	LeftBehind int            `json:"left_behind"`
	Elapsed    float64        `json:"elapsed_s"`
	Ideal      float64        `json:"ideal_s"`
	Seed       uint64         `json:"seed"`
	Clock      string         `json:"clock"`
}

func newReport(c config, p plan, log *history, v verdict, left int, elapsed time.Duration) report {
	ends := log.ends
	r := report{
		Limit: c.limit, Executions: c.executions, Succeeded: ends[succeeded], Workers: c.workers, Ends: map[ending]int{},
		Peak: v.Peak, Violations: len(v.Violations), First: v.Violations[:min(maxListed, len(v.Violations))], Unplanned: log.unplanned[:min(maxListed, len(log.unplanned))], LateSteps: v.Late, LeftBehind: left,
		Elapsed: elapsed.Round(time.Millisecond).Seconds(),
		Ideal:   (time.Duration(p.ideal(min(c.limit, c.workers))) * step).Seconds(),
		Seed:    c.seed, Clock: hostclock.Name,
	}
	for _, e := range endings {
		r.Attempts += ends[e]
		if ends[e] > 0 {
			r.Ends[e] = ends[e]
		}
	}
	r.OK = r.Succeeded == r.Executions && r.Peak <= r.Limit && r.Violations == 0 && r.LeftBehind == 0
	return r
}

// maxListed bounds the violations and the unplanned ends that are printed.
const maxListed = 5

// Passed is report.OK.
func (r report) Passed() bool { return r.OK }

// Write prints the table and, unless out is a terminal, the line of JSON.
func (r report) Write(out io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "%d executions by %d worker processes under a limit of %d:\n", r.Executions, r.Workers, r.Limit)
	row("executions", "%4d of %d succeeded", r.Succeeded, r.Executions)
	row("attempts", "%4d", r.Attempts)
	for _, e := range endings {
		if n := r.Ends[e]; n > 0 {
			row("  "+labels[e], "%4d", n)
		}
	}
	for _, a := range r.Unplanned {
		fmt.Fprintf(out, "    %s\n", a)
	}
	row("peak", "%4d working at the same time, by the workers' timestamps", r.Peak)
	row("violations", "%4d", r.Violations)
	for _, v := range r.First {
		fmt.Fprintf(out, "    %s\n", v)
	}
	if more := r.Violations - len(r.First); more > 0 {
		fmt.Fprintf(out, "    and %d more\n", more)
	}
	row("permits left behind", "%4d", r.LeftBehind)
	row("elapsed", "%6.1f s (the work alone, without failures: %.1f s)", r.Elapsed, r.Ideal)
	if r.OK {
		fmt.Fprintln(out, "The limit held.")
	} else {
		fmt.Fprintln(out, "FAILED.")
	}
	child.WriteJSON(out, r)
}
