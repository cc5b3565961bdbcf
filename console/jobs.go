package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/doctor"
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
	Bad                         bool      // its latest run that is over was lost or has failed; Tick, Outcome and Owner are of that one
	Outlasts                    bool      // it runs, although its next tick has come
	Paused                      bool
	Lost, Failed                int // attempts that were lost, and runs that have failed
	Marks                       marks

	lostAt, failedAt     time.Time // the latest tick with one of them
	lostOpen, failedOpen bool      // an operator has to look at them: doctor.Runs
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
	{"outlasts", "past its next tick", true, func(r jobRow) bool { return r.Outlasts }},
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
	case r.lostOpen:
		return 3
	case r.Paused:
		return 2
	case r.failedOpen, r.Outlasts:
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
	r.Marks.add(r.Outlasts, "warn", "past its next tick")
	if !r.Paused && r.State != noProcess {
		r.Marks.add(true, map[bool]string{true: "ok", false: "off"}[r.State == running], r.State)
	}
	return r
}

// outlasts returns the next tick of a job that runs, if that has come too long ago, or zero.
func outlasts(j *fleet.Job, now time.Time) time.Time {
	next := record.Time(j.History(now).Next)
	if j.Running() && !j.Paused && doctor.Outlasts(next, now) {
		return next
	}
	return time.Time{}
}

// judgedRuns returns what the doctor judges of the records of a job.
func judgedRuns(j *fleet.Job, h fleet.History, runs []runRow) doctor.Runs {
	r := doctor.Runs{
		Stored: readableRuns(j), Lost: h.Lost, Failed: h.Failed, Repeated: h.Repeated,
		Loss: record.Time(h.LastLost), Failure: record.Time(h.LastFailure), Success: record.Time(h.Success),
	}
	if len(runs) > 0 {
		r.LastFailed = latestOf(runs, runRow.over).State == record.RunFailed
	}
	return r
}

// jobsOf returns the jobs, those that want an operator first, by name.
func jobsOf(s *fleet.State) []jobRow { return jobsAt(s, time.Now()) }

// jobsAt is jobsOf at a time.
func jobsAt(s *fleet.State, now time.Time) (rows []jobRow) {
	for name, j := range s.Jobs {
		if j.Forgotten() {
			continue
		}
		runs := runsOf(j)
		judged := judgedRuns(j, j.History(now), runs)
		row := jobRow{
			Name: name, State: stateOf(j), Paused: j.Paused, Lost: judged.Lost + judged.Repeated, Failed: judged.Failed,
			Overdue: overdueSince(j, now), Outlasts: !outlasts(j, now).IsZero(), lostOpen: judged.LossOpen(now), failedOpen: judged.FailureOpen(now),
		}
		if next := nextOf(j, 1); len(next) > 0 {
			row.Next = next[0]
		}
		if len(runs) > 0 {
			last := latestOf(runs, runRow.over)
			row.Tick, row.Outcome, row.Owner, row.Bad = last.Tick, last.State, last.Owner, last.Bad
			row.lostAt = latestOf(runs, runRow.lost).Tick
			row.failedAt = latestOf(runs, func(r runRow) bool { return r.State == record.RunFailed }).Tick
		}
		rows = append(rows, row.marked())
	}
	slices.SortFunc(rows, func(a, b jobRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// sideJobs are the names beside the page of a job.
func sideJobs(_ *console, s *fleet.State) (out []sideRow) {
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
