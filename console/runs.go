package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/ticks"
	"github.com/etcdkit/etcdkit/schedlock"
)

// runRow is a recorded run, or ticks that no process has started.
type runRow struct {
	Tick, Start             time.Time
	State, Owner, Error, By string
	Took                    string
	Attempt                 int
	Token                   int64 // while it is active
	Bad, Skipped            bool

	end time.Time
}

// tickOf returns the time of a tick, or zero if no page can show it. That of 0 is a tick like others.
func tickOf(ms int64) time.Time {
	if ms == 0 {
		return time.UnixMilli(0)
	}
	return record.Time(ms)
}

// lostWithout is why a run was lost, if its record does not say that.
const lostWithout = "its session has ended: its process died, was cut off from etcd, or was paused for too long"

// runsOf returns the recorded runs, the latest tick first, and of a tick its attempts, the latest first. Records that are damaged
// are left out.
func runsOf(j *fleet.Job) (rows []runRow) {
	for tick, run := range j.Runs {
		r := run.More
		if run.State == "" || r == nil {
			continue
		}
		row := runRow{
			Tick: tickOf(tick), State: run.State, Owner: r.Owner, Error: r.Error, By: r.By, Attempt: r.Attempt,
			Start: record.Time(r.StartMS), end: record.Time(r.EndMS), Took: "–",
		}
		switch {
		case run.State == fleet.Later:
			row.Error = "this release cannot read its record"
		case j.Lost(run):
			row.State, row.Error = string(schedlock.RunLost), cmp.Or(r.Error, lostWithout)
		case run.State == record.RunRunning:
			row.Token = j.Token()
		}
		rows = append(rows, row.judged())
		for _, before := range r.Earlier {
			rows = append(rows, earlierOf(row.Tick, before))
		}
	}
	slices.SortFunc(rows, func(a, b runRow) int { return cmp.Or(b.Tick.Compare(a.Tick), cmp.Compare(b.Attempt, a.Attempt)) })
	return rows
}

// earlierOf returns an attempt after which the run was tried again.
func earlierOf(tick time.Time, e record.Ended) runRow {
	row := runRow{
		Tick: tick, State: e.State, Owner: e.Owner, Error: e.Error, Attempt: e.Attempt,
		Start: record.Time(e.StartMS), end: record.Time(e.EndMS), Took: "–",
	}
	if e.State == record.RunRunning {
		row.State, row.Error = string(schedlock.RunLost), cmp.Or(e.Error, lostWithout)
	}
	return row.judged()
}

// judged adds whether a run was lost or has failed, and how long it took.
func (r runRow) judged() runRow {
	r.Bad = r.lost() || r.State == record.RunFailed
	if !r.Start.IsZero() && !r.end.IsZero() {
		r.Took = max(0, r.end.Sub(r.Start)).Round(time.Millisecond).String()
	}
	return r
}

func (r runRow) lost() bool { return r.State == string(schedlock.RunLost) }

// latestOf returns the first of some runs that is so, or the first one if none is.
func latestOf(rows []runRow, is func(runRow) bool) runRow {
	return rows[max(0, slices.IndexFunc(rows, is))]
}

func (r runRow) over() bool { return r.State != record.RunRunning }

// withSkipped adds the ticks between two records that no process has started.
func withSkipped(rows []runRow, period time.Duration) (out []runRow) {
	for i, r := range rows {
		out = append(out, r)
		if period < ticks.Smallest || i+1 == len(rows) {
			continue
		}
		no := ticks.Between(period, rows[i+1].Tick, rows[i+1].end, r.Tick)
		if no.Count == 0 {
			continue
		}
		row := runRow{Tick: no.First, State: "skipped", Error: no.Why, Skipped: true, Took: "–"}
		if no.Count > 1 {
			row.State = fmt.Sprintf("skipped, %d ticks", no.Count)
		}
		out = append(out, row)
	}
	return out
}

// skippedSince is the row of the ticks since the latest record that no process has started.
func skippedSince(latest runRow, period time.Duration, since, now time.Time) runRow {
	no := ticks.Between(period, since.Add(-period), latest.end, now)
	row := runRow{Tick: no.First, State: "skipped", Error: "no process has started the job since", Skipped: true, Bad: true, Took: "–"}
	if no.Count > 1 {
		row.State = fmt.Sprintf("skipped, %d ticks", no.Count)
	}
	return row
}

// processRow is what one process has run.
type processRow struct {
	Owner                    string
	Runs, Done, Failed, Lost int
	Latest                   time.Time
}

// processesOf sums up runs by process, the one that started a run last first.
func processesOf(rows []runRow) (out []processRow) {
	by := map[string]*processRow{}
	for _, r := range rows {
		if r.State == fleet.Later {
			continue
		}
		p := by[r.Owner]
		if p == nil {
			p = &processRow{Owner: r.Owner}
			by[r.Owner] = p
		}
		p.Runs++
		switch r.State {
		case record.RunDone:
			p.Done++
		case record.RunFailed:
			p.Failed++
		case string(schedlock.RunLost):
			p.Lost++
		}
		if r.Start.After(p.Latest) {
			p.Latest = r.Start
		}
	}
	for _, p := range by {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b processRow) int {
		return cmp.Or(b.Latest.Compare(a.Latest), strings.Compare(a.Owner, b.Owner))
	})
	return out[:min(pageSize, len(out))]
}
