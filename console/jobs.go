package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/internal/ticks"
	"github.com/etcdkit/etcdkit/schedlock"
)

// jobRow is a job in the list.
type jobRow struct {
	Name, State, Outcome, Owner string
	Tick, Next                  time.Time
	Overdue                     time.Time // since when no process starts it, or zero
	Bad                         bool      // its latest run was lost or has failed
	Paused                      bool
	Lost, Failed                int
	Marks                       marks
}

// jobList is the list of jobs.
type jobList struct {
	Jobs  []jobRow
	Chips []chips
	pager
}

// Pager returns the place in the table.
func (l jobList) Pager() pager { return l.pager }

// locker returns the Locker of the console's actions. There is one, made on first use: each has watches, and
// publishes the time of its process, until the session ends.
func (c *console) locker() (*schedlock.Locker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user == nil {
		l, err := schedlock.New(c.sess, nil)
		if err != nil {
			return nil, err
		}
		c.user = l
	}
	return c.user, nil
}

func readJobs(q request) (any, quality, error) {
	rows, st, err := look(q, "jobs", jobsOf)
	if err != nil {
		return nil, st, err
	}
	var l jobList
	rows, states := choose(q, "show", "State", rows, jobChoices)
	rows, orders := sorted(q, rows, jobOrders)
	l.Chips = []chips{states, orders}
	l.Jobs, l.pager = paged(q, rows, "page")
	return l, st, nil
}

// jobChoices are the states by which jobs are selected.
var jobChoices = []choice[jobRow]{
	{"overdue", "not started", true, func(r jobRow) bool { return !r.Overdue.IsZero() }},
	{"gone", noProcess, true, func(r jobRow) bool { return strings.HasPrefix(r.State, noProcess) }},
	{"lost", "lost runs", true, func(r jobRow) bool { return r.Lost > 0 }},
	{"failed", "failed runs", true, func(r jobRow) bool { return r.Failed > 0 }},
	{"paused", "paused", true, func(r jobRow) bool { return r.Paused }},
	{"running", "running", false, func(r jobRow) bool { return strings.HasPrefix(r.State, running) }},
}

// jobOrders are the orders of the list.
var jobOrders = []sorting[jobRow]{
	{"", "problems first", nil},
	{"next", "next tick", func(a, b jobRow) int { return fleet.CompareAges(a.Next, b.Next) }},
	{"last", "last tick", func(a, b jobRow) int { return b.Tick.Compare(a.Tick) }},
	{"name", "name", func(a, b jobRow) int { return strings.Compare(a.Name, b.Name) }},
}

// trouble is how much a job wants an operator: 0 if it does not.
func (r jobRow) trouble() int {
	switch {
	case !r.Overdue.IsZero(), r.State == noProcess:
		return 5
	case r.Bad:
		return 4
	case r.Lost > 0:
		return 3
	case r.Paused:
		return 2
	case r.Failed > 0:
		return 1
	}
	return 0
}

// marked adds the states of a job.
func (r jobRow) marked() jobRow {
	r.Marks.add(!r.Overdue.IsZero(), "bad", "no process starts it")
	r.Marks.add(r.State == noProcess, "bad", r.State)
	r.Marks.add(r.Bad, "bad", "last run "+text(r.Outcome))
	r.Marks.add(r.Paused, "paused", r.State)
	if !r.Paused && r.State != noProcess {
		r.Marks.add(true, map[bool]string{true: "ok", false: "off"}[r.State == running], r.State)
	}
	return r
}

// jobsOf returns the jobs, those that want an operator first, by name.
func jobsOf(s *fleet.State) (rows []jobRow) {
	for name, j := range s.Jobs {
		if j.Forgotten() {
			continue
		}
		h := j.History(time.Now())
		row := jobRow{Name: name, State: stateOf(j), Paused: j.Paused, Lost: h.Lost, Failed: h.Failed, Overdue: overdueSince(j, time.Now())}
		if next := nextOf(j, 1); len(next) > 0 {
			row.Next = next[0]
		}
		if runs := runsOf(j); len(runs) > 0 {
			row.Tick, row.Outcome, row.Owner, row.Bad = runs[0].Tick, runs[0].State, runs[0].Owner, runs[0].Bad
		}
		rows = append(rows, row.marked())
	}
	slices.SortFunc(rows, func(a, b jobRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// sideJobs are the names beside the page of a job.
func sideJobs(s *fleet.State) (out []sideRow) {
	for _, r := range jobsOf(s) {
		out = append(out, sideRow{Name: r.Name, Href: pageOf("job", r.Name), Shape: r.Marks[0].Shape, State: r.Marks[0].Text})
	}
	return out
}

// running is the state of a job with an active run, noProcess that of one whose schedule no live process has any more.
const (
	running   = "running"
	noProcess = "no process"
)

// isGone reports whether no live process has the job any more, as EtcdkitJobGone and EtcdkitPausedJobGone do.
func isGone(j *fleet.Job) bool {
	now := time.Now()
	n, known := j.Processes(now, j.History(now))
	return known && n == 0
}

// stateOf returns the state of a job in words.
func stateOf(j *fleet.Job) string {
	state := "idle"
	switch {
	case j.Running():
		state = running
	case isGone(j):
		state = noProcess
	case len(j.Runs) == 0 && j.Planned():
		state = "never run"
	case j.Cooling:
		state = "cooling down"
	}
	if j.Paused {
		state = strings.TrimPrefix(state+", paused", "idle, ")
	}
	return state
}

// overdueSince returns the first fire time since the latest record that no process has started, if that has come a
// while ago and nothing that is stored keeps the job from starting; or zero.
func overdueSince(j *fleet.Job, now time.Time) time.Time {
	if j.Paused || j.Running() || j.Cooling {
		return time.Time{}
	}
	return ticks.Unstarted(record.Time(j.History(now).Next), now)
}

// nextOf returns fire times that have not come and have no record, if they are known and the job is not paused.
func nextOf(j *fleet.Job, n int) []time.Time {
	if j.Paused {
		return nil
	}
	return j.Upcoming(time.Now(), n)
}

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

// runsOf returns the recorded runs, the latest tick first. Records that are damaged are left out.
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
			row.State, row.Error = string(schedlock.RunLost), cmp.Or(r.Error, "its session has ended: its process died, was cut off from etcd, or was paused for too long")
		case run.State == record.RunRunning:
			row.Token = j.Token()
		}
		row.Bad = row.State == string(schedlock.RunLost) || row.State == record.RunFailed
		if !row.Start.IsZero() && !row.end.IsZero() {
			row.Took = max(0, row.end.Sub(row.Start)).Round(time.Millisecond).String()
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b runRow) int { return b.Tick.Compare(a.Tick) })
	return rows
}

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

// jobView is what is shown of a job.
type jobView struct {
	Name, State, Settings string
	Known                 bool // it has something in etcd
	Paused                *record.Pause
	PausedSince           time.Time
	Locked                bool
	Active                string      // token of the active run, or ""
	Ticks                 []time.Time // the next ones
	Overdue               time.Time   // since when no process starts it, or zero
	Processes             []processRow
	Strip                 *strip // or nil
	runs                  []runRow
}

// jobPage is the page of a job.
type jobPage struct {
	jobView
	Runs []runRow
	May  map[string]bool
	pager
}

// Pager returns the place in the table.
func (p jobPage) Pager() pager { return p.pager }

// shownTicks is how many of the next fire times are shown.
const shownTicks = 5

func readJob(q request) (any, quality, error) {
	name := q.name()
	view, st, err := look(q, "job/"+name, func(s *fleet.State) (v jobView) {
		j := s.Jobs[name]
		if j == nil || j.Forgotten() {
			return v
		}
		runs := runsOf(j)
		v = jobView{
			Name: name, State: stateOf(j), Settings: j.Settings, Known: true, Locked: j.Running() || j.Cooling,
			Ticks: nextOf(j, shownTicks), Overdue: overdueSince(j, time.Now()), Processes: processesOf(runs), Strip: stripOf(runs, time.Now()), runs: withSkipped(runs, j.Period),
		}
		if j.Running() {
			v.Active = strconv.FormatInt(j.Token(), 10)
		}
		if !v.Overdue.IsZero() && len(runs) > 0 {
			v.runs = append([]runRow{skippedSince(runs[0], j.Period, v.Overdue, time.Now())}, v.runs...)
		}
		if pause := j.Pause; j.Paused {
			v.Paused, v.PausedSince = &pause, record.Time(pause.AtMS)
		}
		return v
	})
	if err == nil && !view.Known {
		err = notFound{fmt.Errorf("job %q: %w", name, schedlock.ErrUnknownJob)}
	}
	if err != nil {
		return nil, st, err
	}
	p := jobPage{jobView: view, May: q.offers("job/"+name, Pause, Resume, Unlock, Trigger)}
	p.Runs, p.pager = paged(q, view.runs, "page")
	return p, st, nil
}
