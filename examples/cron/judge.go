package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// verdict is what the parent finds out, from the workers' stamps and from nothing else but,
// for the reasons, the history in etcd.
type verdict struct {
	Schedlock  []tally
	Naive      []tally
	Violations []string
	Stalled    float64
}

// tally is what became of one job's fire times.
type tally struct {
	Job      string `json:"job"`
	Ticks    int    `json:"ticks"`
	Starts   int    `json:"starts"`
	Again    int    `json:"further_attempts"`
	Doubled  int    `json:"ticks_started_twice"` // in the same attempt
	Most     int    `json:"most_starts_of_a_tick"`
	Overlaps int    `json:"overlaps"`
	// Lost ticks were not done although they should have been; Skipped ones because
	// the run before went on.
	Lost    map[string]int `json:"lost,omitempty"`
	Skipped int            `json:"skipped"`
}

// recovery is how long after a fault the job was started again: the same tick, or the next.
type recovery struct {
	Fault  *fault  `json:"fault"`
	Tick   string  `json:"tick"`
	Holder string  `json:"holder"`
	After  float64 `json:"started_again_after_s,omitempty"`

	same bool // it was the same tick
}

func judge(jobs []job, events []event, members map[string]*member, faults []*fault, history map[string][]schedlock.Record) (v verdict) {
	for _, j := range jobs {
		v.naive(j, events)
		v.schedlock(j, events, members, history[j.Name])
	}
	v.Stalled = stalled(events, members)
	for _, x := range faults {
		if x.holder == "" {
			v.wrong("%s: nobody was %s", x.Job, x.What)
		}
	}
	for _, e := range events {
		if e.Way == bySchedlock && e.Kind == evResult && e.Error != "" && !excused(e, members) {
			v.wrong("%s, tick %s, %s: %s", e.Job, clockTime(e.Tick), e.holder, e.Error)
		}
	}
	return v
}

// excused tells whether an error is what a paused process has to be told.
func excused(e event, members map[string]*member) bool {
	m := members[e.holder]
	return m != nil && len(m.pauses) > 0 && e.At >= m.pauses[0][0]
}

func (m *member) stops() int {
	if m == nil {
		return 0
	}
	return len(m.pauses)
}

// stalled returns the longest time for which a process stood still, in seconds, and nobody had
// stopped it: the machine is busy. Sessions as short as these can be lost by that.
func stalled(events []event, members map[string]*member) (longest float64) {
	for _, e := range events {
		m, meant := members[e.holder], false
		for i := range m.stops() {
			meant = meant || e.At-e.Took <= m.pauses[i][1] && e.At >= m.pauses[i][0]
		}
		if e.Kind == evStall && !meant {
			longest = max(longest, time.Duration(e.Took).Round(time.Millisecond).Seconds())
		}
	}
	return longest
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

func (v *verdict) naive(j job, events []event) {
	t, starts := count(byName, j, events)
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

func (v *verdict) schedlock(j job, events []event, members map[string]*member, history []schedlock.Record) {
	t, starts := count(bySchedlock, j, events)
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
	t.Overlaps = v.overlaps(j, events, members)
	records := map[time.Time]schedlock.Record{}
	for _, r := range history {
		records[r.Tick.UTC()] = r
	}
	outcomes := map[time.Time]map[string]bool{}
	for _, e := range events {
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
			v.wrong("%s, tick %s: attempt %d was started, and the history does not tell", j.Name, clockTime(tick), last)
		}
		if outcomes[tick][schedlock.Ran.String()] || recorded && rec.State == schedlock.RunDone {
			continue
		}
		fate := ""
		if m := members[rec.Holder]; recorded && m != nil {
			fate = m.fate
		}
		switch {
		case recorded && rec.State == schedlock.RunLost && fate != "":
			t.Lost["its process was "+fate]++
			if j.Retries > 0 {
				v.wrong("%s, tick %s was lost with %s, %s, and not started again", j.Name, clockTime(tick), rec.Holder, fate)
			}
		case recorded:
			t.Lost[string(rec.State)]++
			v.wrong("%s, tick %s, of %s, is %s: %s", j.Name, clockTime(tick), rec.Holder, rec.State, rec.Error)
		case j.overlong() && outcomes[tick][schedlock.StillRunning.String()]:
			t.Skipped++
		default:
			why := strings.Join(slices.Sorted(maps.Keys(outcomes[tick])), ", ")
			t.Lost["never started: "+why]++
			v.wrong("%s, tick %s was never started: %s", j.Name, clockTime(tick), why)
		}
	}
	v.Schedlock = append(v.Schedlock, t)
}

// overlaps counts steps of work that were done while another run of the job was at work. A
// step in which a process was stopped counts up to there: it can look no more.
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
		run := fmt.Sprintf("tick %s, attempt %d, by %s", clockTime(e.Tick), e.Attempt, e.holder)
		m := members[e.holder]
		if e.Kind == evStep {
			w := &work{run, e.At, e.At}
			open[run], all = w, append(all, w)
			continue
		}
		w := open[run]
		w.to = e.At
		for i := range m.stops() {
			if stop := m.pauses[i]; w.from <= stop[1] && e.At >= stop[1] {
				w.to = max(w.from, stop[0]) // on a busy machine a process stops a little after it was told to
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
