package main

import (
	"fmt"
	"io"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// outcome is the result of a run, and its last line of output.
type outcome struct {
	OK         bool     `json:"ok"`
	Instances  int      `json:"instances"`
	Front      string   `json:"reverse_proxy,omitempty"` // if it is a program of its own
	Limit      int      `json:"limit"`
	TTL        float64  `json:"ttl_s"`
	Wait       float64  `json:"wait_s"`
	Rows       []*row   `json:"rows"`
	Skipped    []string `json:"skipped"`
	Violations []string `json:"violations"`
	Elapsed    float64  `json:"elapsed_s"`
}

// add takes the rows into the outcome.
func (o *outcome) add(rows []*row) {
	o.Rows, o.Violations = rows, []string{}
	for _, r := range rows {
		for _, w := range r.Wrong {
			o.OK = false
			o.Violations = append(o.Violations, r.Name+": "+w)
		}
	}
}

func (o *outcome) Passed() bool { return o.OK }

// Write prints the table and, unless out is a terminal, the line of JSON.
func (o *outcome) Write(out io.Writer) {
	fmt.Fprintf(out, "%d instances behind a reverse proxy, limit %d, a request waits for up to %g s\n", o.Instances, o.Limit, o.Wait)
	if o.Front != "" {
		fmt.Fprintf(out, "the reverse proxy is %s\n", o.Front)
	}
	fmt.Fprintf(out, "\n%-38s %4s %6s %6s %5s %5s %6s %9s %7s %7s  %s\n", "phase", "peak", "bound", "2xx", "429", "503", "other", "no permit", "p50 s", "p95 s", "held")
	for _, r := range o.Rows {
		bound, held := "none", "yes"
		if r.Bound > 0 {
			bound = fmt.Sprint(r.Bound)
		}
		if !r.Held {
			held = "NO"
		}
		fmt.Fprintf(out, "%-38s %4d %6s %6d %5d %5d %6d %9d %7.2f %7.2f  %s\n", r.Name, r.Peak, bound, r.Served, r.Full, r.Unavailable, r.Other, r.Without, r.P50, r.P95, held)
	}
	for _, name := range o.Skipped {
		fmt.Fprintf(out, "%-38s skipped: it stops the member of an embedded etcd\n", name)
	}
	program.WriteVerdict(out, o.Elapsed, o.Violations, "Every promise was kept: the downstream service saw no more calls at once than the bound.")
	child.WriteJSON(out, o)
}
