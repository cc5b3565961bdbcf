package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/examples/internal/child"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// report is the outcome of a run, and its last line of output.
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
	Astray     []string       `json:"astray,omitempty"`
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
		Peak: v.Peak, Violations: len(v.Violations), First: v.Violations[:min(maxShown, len(v.Violations))], Astray: log.astray[:min(maxShown, len(log.astray))], LateSteps: v.Late, LeftBehind: left,
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

// maxShown bounds the violations, and the attempts that went astray, that are
// shown.
const maxShown = 5

// write prints the table and the line of JSON.
func (r report) write(out io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "%d executions, at most %d at a time, by %d worker processes:\n", r.Executions, r.Limit, r.Workers)
	row("executions", "%4d of %d succeeded", r.Succeeded, r.Executions)
	row("attempts", "%4d", r.Attempts)
	for _, e := range endings {
		if n := r.Ends[e]; n > 0 {
			row("  "+labels[e], "%4d", n)
		}
	}
	for _, a := range r.Astray {
		fmt.Fprintf(out, "    %s\n", a)
	}
	row("peak", "%4d at work at a time, by the workers' own clock stamps", r.Peak)
	row("violations", "%4d", r.Violations)
	for _, v := range r.First {
		fmt.Fprintf(out, "    %s\n", v)
	}
	if more := r.Violations - len(r.First); more > 0 {
		fmt.Fprintf(out, "    and %d more\n", more)
	}
	row("permits left behind", "%4d", r.LeftBehind)
	row("elapsed", "%6.1f s; %.1f s if nothing went wrong and nothing took time but the work", r.Elapsed, r.Ideal)
	if r.OK {
		fmt.Fprintln(out, "The limit held.")
	} else {
		fmt.Fprintln(out, "FAILED.")
	}
	child.WriteJSON(out, r)
}
