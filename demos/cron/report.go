package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/schedlock"
)

// outcome is the result of the program, and its last line of output.
type outcome struct {
	OK         bool       `json:"ok"`
	Workers    int        `json:"workers"`
	Skew       float64    `json:"skew_s"`
	TTL        float64    `json:"ttl_s"`
	Faults     int        `json:"faults"`
	Restarts   int        `json:"restarts"`
	Schedlock  []tally    `json:"schedlock"`
	Naive      []tally    `json:"lock_by_name"`
	Recoveries []recovery `json:"recoveries"`
	Violations []string   `json:"violations"`
	Stalled    float64    `json:"longest_stall_s"`
	Excused    int        `json:"excused"`
	Elapsed    float64    `json:"elapsed_s"`
	Clock      string     `json:"clock"`

	history map[string][]schedlock.Record
}

func newOutcome(c config, v verdict, r []recovery, restarts int, history map[string][]schedlock.Record, elapsed time.Duration) *outcome {
	return &outcome{
		OK: len(v.Violations) == 0, Workers: c.workers, Skew: c.skew.Seconds(), TTL: c.TTL.Seconds(), Faults: len(r), Restarts: restarts,
		Schedlock: v.Schedlock, Naive: v.Naive, Recoveries: r, Violations: append([]string{}, v.Violations...), Stalled: v.Stalled, Excused: v.Excused,
		Elapsed: elapsed.Round(time.Millisecond).Seconds(), Clock: hostclock.Name, history: history,
	}
}

// recoveries returns for each fault when the job was started again.
func recoveries(faults []*fault, events []event) (all []recovery) {
	for _, x := range faults {
		r := recovery{Fault: x, Tick: clockTime(x.tick), Owner: x.worker}
		for _, e := range events {
			if e.Way == bySchedlock && e.Job == x.Job && e.Kind == evBegin && e.At > x.at {
				r.After = time.Duration(e.At - x.at).Round(time.Millisecond).Seconds()
				r.same = e.Tick.Equal(x.tick)
				break
			}
		}
		all = append(all, r)
	}
	return all
}

// shown is how much of a list is printed.
const shown = 5

func (o *outcome) Passed() bool { return o.OK }

func (o *outcome) Write(out io.Writer) {
	fmt.Fprintf(out, "%d processes, clocks off by -%gs to +%gs, TTL %gs; %d killed or paused past the TTL, then all %d restarted one by one\n\n",
		o.Workers, o.Skew, o.Skew, o.TTL, o.Faults, o.Restarts)
	writeTable(out, "schedlock", o.Schedlock)
	for _, t := range o.Schedlock {
		for _, why := range slices.Sorted(maps.Keys(t.Lost)) {
			fmt.Fprintf(out, "  lost of %s: %d, %s\n", t.Job, t.Lost[why], why)
		}
	}
	fmt.Fprintln(out)
	writeTable(out, "lock by name", o.Naive)
	fmt.Fprintln(out)
	for _, r := range o.Recoveries {
		what := "its next tick"
		if r.same {
			what = "the tick's second attempt"
		}
		fmt.Fprintf(out, "%s of tick %s, %s %s: %s started %.1f s later\n", r.Fault.Job, r.Tick, r.Owner, r.Fault.What, what, r.After)
	}
	fmt.Fprintln(out, "\nhistory in etcd, latest first:")
	for _, t := range o.Schedlock {
		writeHistory(out, t.Job, o.history[t.Job])
	}
	o.writeVerdict(out)
	child.WriteJSON(out, o)
}

func writeTable(out io.Writer, name string, all []tally) {
	fmt.Fprintf(out, "%-12s %7s %7s %17s %15s %14s %5s %8s\n", name, "ticks", "starts", "further attempts", "started twice", "most per tick", "lost", "skipped")
	for _, t := range all {
		lost := 0
		for _, n := range t.Lost {
			lost += n
		}
		fmt.Fprintf(out, "  %-10s %7d %7d %17d %15d %14d %5d %8d\n", t.Job, t.Ticks, t.Starts, t.Again, t.Doubled, t.Most, lost, t.Skipped)
	}
}

func writeHistory(out io.Writer, job string, records []schedlock.Record) {
	states := map[string]int{}
	for _, r := range records {
		states[string(r.State)]++
	}
	var sum []string
	for _, s := range slices.Sorted(maps.Keys(states)) {
		sum = append(sum, fmt.Sprintf("%d %s", states[s], s))
	}
	fmt.Fprintf(out, "  %s: %s\n", job, strings.Join(sum, ", "))
	for _, r := range records[:min(shown, len(records))] {
		took := "-"
		if !r.End.IsZero() {
			took = r.End.Sub(r.Start).String()
		}
		fmt.Fprintf(out, "    %s  attempt %d  %-11s %-8s %s\n", clockTime(r.Tick), r.Attempt, r.Owner, r.State, took)
	}
}

func (o *outcome) writeVerdict(out io.Writer) {
	var remarks []string
	if o.Excused > 0 || !o.OK && o.Stalled > o.TTL/10 {
		remarks = append(remarks, fmt.Sprintf("The machine is too busy for a TTL of %gs: a process or etcd got no time to run for %gs. That explains %d lost ticks and errors.", o.TTL, o.Stalled, o.Excused))
	}
	program.WriteVerdict(out, o.Elapsed, o.Violations, "No attempt at a tick started twice, and no tick was lost that should not be.", remarks...)
}
