package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// verdict is what the parent finds out: from the workers' timestamps and, for the reasons, from the
// history in etcd.
type verdict struct {
	Schedlock  []tally
	Naive      []tally
	Violations []string
	Stalled    float64 // the longest standstill
	Excused    int     // lost ticks and errors that a standstill explains

	evidence
	still []standstill
}

// tally counts what happened to the fire times of one job.
type tally struct {
	Job      string `json:"job"`
	Ticks    int    `json:"ticks"`
	Starts   int    `json:"starts"`
	Again    int    `json:"further_attempts"`
	Doubled  int    `json:"ticks_started_twice"` // in the same attempt
	Most     int    `json:"most_starts_of_a_tick"`
	Overlaps int    `json:"overlaps"`
	// Lost counts by reason the ticks that should have been done and were not; Skipped those that
	// came while the previous run was active.
	Lost    map[string]int `json:"lost,omitempty"`
	Skipped int            `json:"skipped"`
}

// recovery is the time from a fault to the next start of the job, for the same tick or the next one.
type recovery struct {
	Fault *fault  `json:"fault"`
	Tick  string  `json:"tick"`
	Owner string  `json:"owner"`
	After float64 `json:"started_again_after_s,omitempty"`

	same bool // it was the same tick
}

// evidence is all that the judge looks at.
type evidence struct {
	config
	jobs    []job
	events  []event
	members map[string]*member
	faults  []*fault
	history map[string][]schedlock.Record
	clock   hostTime
}

func judge(x evidence) (v verdict) {
	v.evidence = x
	var longest time.Duration
	v.still, longest = standstills(x.events, x.members)
	v.Stalled = longest.Round(time.Millisecond).Seconds()
	for _, j := range x.jobs {
		v.naive(j)
		v.schedlock(j)
	}
	for _, f := range x.faults {
		if f.worker == "" {
			v.wrongUnless(v.stoodStill(named(x.jobs, f.Job), f.tick), "%s: no process was %s", f.Job, f.What)
		}
	}
	for _, e := range x.events {
		if e.Way == bySchedlock && e.Kind == evResult && e.Error != "" && !excused(e, x.members) {
			lost := e.Outcome == schedlock.Lost.String()
			v.wrongUnless(lost && v.stoodStill(named(x.jobs, e.Job), e.Tick), "%s, tick %s, %s: %s", e.Job, clockTime(e.Tick), e.worker, e.Error)
		}
	}
	return v
}

// stoodStill reports whether a process or etcd got no time to run while a tick should have been
// started, or run, or its lease renewed.
func (v *verdict) stoodStill(j job, tick time.Time) bool {
	from, to := v.clock.at(tick.Add(-v.skew)), v.clock.at(tick.Add(max(j.Every, j.Takes)+v.skew+v.config.TTL))
	return slices.ContainsFunc(v.still, func(s standstill) bool { return s.from <= to && s.to >= from })
}

// wrongUnless notes a violation, unless a standstill excuses it.
func (v *verdict) wrongUnless(still bool, format string, args ...any) {
	if still {
		v.Excused++
		return
	}
	v.wrong(format, args...)
}

// excused reports whether an error is the consequence of a pause of its process.
func excused(e event, members map[string]*member) bool {
	m := members[e.worker]
	return m != nil && len(m.pauses) > 0 && e.At >= m.pauses[0][0]
}

func (m *member) stops() int {
	if m == nil {
		return 0
	}
	return len(m.pauses)
}

func (v *verdict) wrong(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

// count counts the starts of each tick and attempt.
func count(way string, j job, events []event) (t tally, starts map[time.Time]map[int]int) {
	t, starts = tally{Job: j.Name, Ticks: len(j.ticks()), Lost: map[string]int{}}, map[time.Time]map[int]int{}
	for _, e := range events {
		if e.Way != way || e.Job != j.Name || e.Kind != evBegin {
			continue
		}
		at := starts[e.Tick.UTC()]
		if at == nil {
			at = map[int]int{}
			starts[e.Tick.UTC()] = at
		}
		at[e.Attempt]++
		t.Starts++
	}
	for _, attempts := range starts {
		sum, twice := 0, false
		for n, times := range attempts {
			sum += times
			twice = twice || times > 1
			if n > 1 {
				t.Again += times
			}
		}
		t.Most = max(t.Most, sum)
		if twice {
			t.Doubled++
		}
	}
	return t, starts
}

func (v *verdict) naive(j job) {
	t, starts := count(byName, j, v.events)
	for _, tick := range j.ticks() {
		switch {
		case len(starts[tick.UTC()]) > 0:
		case j.overlong():
			t.Skipped++
		default:
			t.Lost["not started"]++
		}
	}
	v.Naive = append(v.Naive, t)
}

func (v *verdict) schedlock(j job) {
	t, starts := count(bySchedlock, j, v.events)
	for tick, attempts := range starts {
		for n, times := range attempts {
			if times > 1 {
				v.wrong("%s, tick %s, attempt %d started %d times", j.Name, clockTime(tick), n, times)
			}
		}
		if !slices.ContainsFunc(j.ticks(), tick.Equal) {
			v.wrong("%s was started for %s, which is no fire time", j.Name, tick)
		}
	}
	t.Overlaps = v.overlaps(j, v.events, v.members)
	records := map[time.Time]schedlock.Record{}
	for _, r := range v.history[j.Name] {
		records[r.Tick.UTC()] = r
	}
	outcomes := map[time.Time]map[string]bool{}
	for _, e := range v.events {
		if e.Way == bySchedlock && e.Job == j.Name && e.Kind == evResult {
			if outcomes[e.Tick.UTC()] == nil {
				outcomes[e.Tick.UTC()] = map[string]bool{}
			}
			outcomes[e.Tick.UTC()][e.Outcome] = true
		}
	}
	for _, tick := range j.ticks() {
		tick = tick.UTC()
		rec, recorded := records[tick]
		last := 0
		for n := range starts[tick] {
			last = max(last, n)
		}
		if last > 0 && (!recorded || rec.Attempt < last) {
			v.wrong("%s, tick %s: attempt %d was started, and the history has no record of it", j.Name, clockTime(tick), last)
		}
		if !outcomes[tick][schedlock.Ran.String()] && (!recorded || rec.State != schedlock.RunDone) {
			v.notDone(&t, j, tick, rec, outcomes[tick])
		}
	}
	v.Schedlock = append(v.Schedlock, t)
}

// notDone counts a tick that was not done, by its reason. rec is its record, if it has one.
func (v *verdict) notDone(t *tally, j job, tick time.Time, rec schedlock.Record, outcomes map[string]bool) {
	fate, still := "", v.stoodStill(j, tick)
	if m := v.members[rec.Owner]; m != nil {
		fate = m.fate
	}
	switch {
	case rec.State == schedlock.RunLost && fate != "":
		t.Lost["its process was "+fate]++
		if j.Retries > 0 {
			v.wrongUnless(still, "%s, tick %s was lost with %s, %s, and not started again", j.Name, clockTime(tick), rec.Owner, fate)
		}
	case rec.State != "":
		t.Lost[string(rec.State)]++
		v.wrongUnless(still && rec.State == schedlock.RunLost, "%s, tick %s, of %s, is %s: %s", j.Name, clockTime(tick), rec.Owner, rec.State, rec.Error)
	case j.overlong() && outcomes[schedlock.StillRunning.String()]:
		t.Skipped++
	default:
		why := strings.Join(slices.Sorted(maps.Keys(outcomes)), ", ")
		t.Lost["never started: "+why]++
		v.wrongUnless(still, "%s, tick %s was never started: %s", j.Name, clockTime(tick), why)
	}
}

// overlaps counts the steps of work that were done while another run of the job was working. A step in
// which the process was stopped counts up to the stop, since a stopped process cannot check its run.
func (v *verdict) overlaps(j job, events []event, members map[string]*member) (n int) {
	type work struct {
		run      string
		from, to int64
	}
	open, all := map[string]*work{}, []*work{}
	for _, e := range events {
		if e.Way != bySchedlock || e.Job != j.Name || e.Kind != evStep && e.Kind != evDid {
			continue
		}
		run := fmt.Sprintf("tick %s, attempt %d, by %s", clockTime(e.Tick), e.Attempt, e.worker)
		m := members[e.worker]
		if e.Kind == evStep {
			w := &work{run, e.At, e.At}
			open[run], all = w, append(all, w)
			continue
		}
		w := open[run]
		w.to = e.At
		for i := range m.stops() {
			if stop := m.pauses[i]; w.from <= stop[1] && e.At >= stop[1] {
				w.to = max(w.from, stop[0]) // on a busy machine a process stops a little after the signal
			}
		}
	}
	slices.SortFunc(all, func(a, b *work) int { return int(min(max(a.from-b.from, -1), 1)) })
	var last *work
	for _, w := range all {
		if last != nil && w.from < last.to && w.run != last.run {
			n++
			v.wrong("%s: %s and %s worked at the same time", j.Name, last.run, w.run)
		}
		if last == nil || w.to > last.to {
			last = w
		}
	}
	return n
}

func clockTime(t time.Time) string { return t.Local().Format("15:04:05.000") }
