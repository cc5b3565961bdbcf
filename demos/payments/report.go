package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// outcome is the result of a run, and its last line of output.
type outcome struct {
	OK         bool     `json:"ok"`
	Servers    int      `json:"servers"`
	Copies     int      `json:"requests_at_once"`
	Front      string   `json:"reverse_proxy,omitempty"` // if it is a program of its own
	TTL        float64  `json:"ttl_s"`
	Phases     []report `json:"phases"`
	Others     []report `json:"other_ways"`
	Skipped    []string `json:"skipped"`
	Violations []string `json:"violations"`
	Elapsed    float64  `json:"elapsed_s"`
}

// report is the result of a phase.
type report struct {
	Name   string   `json:"name"`
	Orders int      `json:"orders"`
	Rows   []row    `json:"rows"`
	P50    float64  `json:"p50_ms"` // of the five responses
	P95    float64  `json:"p95_ms"`
	Wrong  []string `json:"wrong"`

	what string
}

// add judges a phase.
func (o *outcome) add(p phase, results []result) {
	r := report{Name: p.Name, what: p.What, Orders: len(results), Rows: table(results), Wrong: []string{}}
	var took []time.Duration
	for _, one := range results {
		for _, a := range one.First {
			took = append(took, a.Took)
		}
	}
	r.P50, r.P95 = percentile(took, 50), percentile(took, 95)
	if p.promise == nil {
		r.Wrong = append(r.Wrong, faults(results)...)
		o.Others = append(o.Others, r)
		return
	}
	r.Wrong = append(r.Wrong, judge(*p.promise, results)...)
	for _, w := range r.Wrong {
		o.wrong("%s: %s", p.Name, w)
	}
	o.Phases = append(o.Phases, r)
}

func (o *outcome) wrong(format string, args ...any) {
	o.OK = false
	o.Violations = append(o.Violations, fmt.Sprintf(format, args...))
}

// percentile returns, in milliseconds, the smallest duration that at least that percentage of all
// does not exceed.
func percentile(all []time.Duration, percent int) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return float64(all[max(0, (len(all)*percent+99)/100-1)].Round(100*time.Microsecond)) / float64(time.Millisecond)
}

func (o *outcome) Passed() bool { return o.OK }

func (o *outcome) Write(out io.Writer) {
	fmt.Fprintf(out, "%d servers behind a round-robin proxy; each payment is sent %d times at once, with one key\n", o.Servers, o.Copies)
	if o.Front != "" {
		fmt.Fprintf(out, "the proxy is %s\n", o.Front)
	}
	head := func(title string) {
		fmt.Fprintf(out, "\n%-42s %6s %4s %4s  %-9s %-12s %5s %7s %7s %7s\n", title, "orders", "2xx", "409", "other", "asked again", "calls", "charges", "p50 ms", "p95 ms")
	}
	head("idempotency.Store")
	for _, r := range o.Phases {
		r.write(out)
	}
	for _, name := range o.Skipped {
		fmt.Fprintf(out, "  %-40s skipped: it stops members of an embedded etcd\n", name)
	}
	head("other ways")
	for _, r := range o.Others {
		r.write(out)
		for _, w := range r.Wrong {
			fmt.Fprintf(out, "      %s\n", w)
		}
		if len(r.Wrong) == 0 {
			fmt.Fprintln(out, "      no order was charged twice, and each receipt was returned")
		}
	}
	program.WriteVerdict(out, o.Elapsed, o.Violations, "Every promise was kept: each order was charged once.")
	child.WriteJSON(out, o)
}

func (r report) write(out io.Writer) {
	for i, t := range r.Rows {
		name, p50, p95 := "", "", ""
		if i == 0 {
			name, p50, p95 = r.Name, strconv.FormatFloat(r.P50, 'f', 1, 64), strconv.FormatFloat(r.P95, 'f', 1, 64)
		}
		others := t.Others
		if others == "" {
			others = "0"
		}
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-40s %6d %4d %4d  %-9s %-12s %5s %7d %7s %7s",
			name, t.Orders, t.Good, t.Conflict, others, t.Later, t.Calls.String(), t.Charges, p50, p95), " "))
	}
}
