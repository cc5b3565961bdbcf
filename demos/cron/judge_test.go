package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// jobOf is a job of two fire times.
func jobOf(name string, retries int, takes time.Duration) job {
	return job{Name: name, Every: time.Second, First: start, Until: start.Add(2 * time.Second), Takes: takes, Retries: retries}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	j := jobOf("x", 0, 0)
	if got := j.ticks(); !slices.Equal(got, []time.Time{start, start.Add(time.Second)}) {
		t.Errorf("ticks %v", got)
	}
	for at, want := range map[time.Duration]time.Time{-time.Hour: start, -1: start, 0: start.Add(time.Second), 999 * time.Millisecond: start.Add(time.Second), time.Second: {}, time.Hour: {}} {
		if got := j.Next(start.Add(at)); !got.Equal(want) {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
}

// run is what a worker reports of a run that succeeded.
func run(job, worker string, tick, attempt int, at int64) []event {
	e := event{Way: bySchedlock, Job: job, Tick: start.Add(time.Duration(tick) * time.Second), Attempt: attempt, worker: worker}
	var all []event
	for i, kind := range []string{evBegin, evStep, evDid, evEnd, evResult} {
		e.Kind, e.At = kind, at+int64(i)*10
		if kind == evResult {
			e.Outcome = schedlock.Ran.String()
		}
		all = append(all, e)
	}
	return all
}

func record(job, worker string, tick, attempt int, state schedlock.State) schedlock.Record {
	return schedlock.Record{Job: job, Owner: worker, Tick: start.Add(time.Duration(tick) * time.Second), Attempt: attempt, State: state}
}

// The judge must be able to fail, each rule of it.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := func() []event { return append(run("x", "a", 0, 1, 0), run("x", "b", 1, 1, 1000)...) }
	history := func() []schedlock.Record {
		return []schedlock.Record{record("x", "b", 1, 1, schedlock.RunDone), record("x", "a", 0, 1, schedlock.RunDone)}
	}
	lostOne := []schedlock.Record{record("x", "b", 1, 1, schedlock.RunLost), record("x", "a", 0, 1, schedlock.RunDone)}
	cut := append(run("x", "a", 0, 1, 0), run("x", "b", 1, 1, 1000)[:2]...)
	running := event{Kind: evResult, Way: bySchedlock, Job: "x", Tick: start.Add(time.Second), Outcome: schedlock.StillRunning.String()}
	for name, x := range map[string]struct {
		job     job
		events  []event
		history []schedlock.Record
		fate    string // of b
		want    string // part of the first violation
	}{
		"all is well":                    {jobOf("x", 0, 0), good(), history(), "", ""},
		"started twice":                  {jobOf("x", 0, 0), append(good(), run("x", "c", 1, 1, 2000)...), history(), "", "attempt 1 started 2 times"},
		"second attempt":                 {jobOf("x", 1, 0), append(cut, run("x", "c", 1, 2, 2000)...), []schedlock.Record{record("x", "c", 1, 2, schedlock.RunDone), history()[1]}, killed, ""},
		"second attempt in silence":      {jobOf("x", 1, 0), append(cut, run("x", "c", 1, 2, 2000)...), history(), killed, "the history has no record"},
		"overlap":                        {jobOf("x", 1, 0), append(good(), run("x", "c", 1, 2, 1005)...), []schedlock.Record{record("x", "c", 1, 2, schedlock.RunDone), history()[1]}, "", "at the same time"},
		"lost with its process":          {jobOf("x", 0, 0), cut, lostOne, killed, ""},
		"lost, although Retries":         {jobOf("x", 1, 0), cut, lostOne, killed, "not started again"},
		"lost without a cause":           {jobOf("x", 0, 0), cut, lostOne, "", "is lost"},
		"failed":                         {jobOf("x", 0, 0), cut, []schedlock.Record{record("x", "b", 1, 1, schedlock.RunFailed), history()[1]}, "", "is failed"},
		"never started":                  {jobOf("x", 0, 0), run("x", "a", 0, 1, 0), history()[1:], "", "never started"},
		"left out, too long":             {jobOf("x", 0, 3*time.Second), append(run("x", "a", 0, 1, 0), running), history()[1:], "", ""},
		"left out, not too long":         {jobOf("x", 0, 0), append(run("x", "a", 0, 1, 0), running), history()[1:], "", "never started: still running"},
		"no record":                      {jobOf("x", 0, 0), good(), history()[:1], "", "the history has no record"},
		"no fire time":                   {jobOf("x", 0, 0), append(good(), run("x", "c", 7, 1, 2000)...), history(), "", "no fire time"},
		"an error":                       {jobOf("x", 0, 0), append(good(), event{Way: bySchedlock, Kind: evResult, Job: "x", Error: "oops"}), history(), "", "oops"},
		"an error after a pause":         {jobOf("x", 0, 0), append(good(), event{Way: bySchedlock, Kind: evResult, Job: "x", Error: "lost", worker: "b"}), history(), paused, ""},
		"the end was not reported, done": {jobOf("x", 0, 0), cut, history(), killed, ""},
		"a step while it was stopped":    {jobOf("x", 1, 0), append(append(slices.Clone(cut), run("x", "c", 1, 2, 1020)...), event{Kind: evDid, Way: bySchedlock, Job: "x", Tick: start.Add(time.Second), Attempt: 1, At: 3000, worker: "b"}), []schedlock.Record{record("x", "c", 1, 2, schedlock.RunDone), history()[1]}, paused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := map[string]*member{"a": {worker: "a"}, "b": {worker: "b", fate: x.fate}, "c": {worker: "c"}}
			if x.fate == paused {
				members["b"].pauses = [][2]int64{{1005, 2999}, {5000, 6000}}
				if strings.HasPrefix(name, "an error") {
					members["b"].pauses[0][0] = 0
				}
			}
			v := judge(evidence{jobs: []job{x.job}, events: x.events, members: members, history: map[string][]schedlock.Record{"x": x.history}, clock: hostTime{wall: start}})
			switch {
			case x.want == "" && len(v.Violations) > 0:
				t.Errorf("violations: %q", v.Violations)
			case x.want != "" && (len(v.Violations) == 0 || !strings.Contains(strings.Join(v.Violations, "\n"), x.want)):
				t.Errorf("violations: %q, want %q", v.Violations, x.want)
			}
		})
	}
	if v := judge(evidence{faults: []*fault{{Job: "x", What: killed}}}); len(v.Violations) != 1 {
		t.Errorf("a fault that did not happen: %q", v.Violations)
	}
}

// A lock by name starts a job as often as a clock comes after the end of the run before.
func TestJudgeCountsTheNaive(t *testing.T) {
	t.Parallel()
	var events []event
	for n := range 3 {
		events = append(events, event{Kind: evBegin, Way: byName, Job: "x", Tick: start, Attempt: 1, At: int64(n)})
	}
	v := judge(evidence{jobs: []job{jobOf("x", 0, 0)}, events: events})
	if n := v.Naive[0]; n.Starts != 3 || n.Doubled != 1 || n.Most != 3 || n.Lost["not started"] != 1 {
		t.Errorf("%+v", n)
	}
}

// A standstill that the program measured, of a process or of etcd, excuses what it explains, and
// never a second start. One that the program caused itself excuses nothing.
func TestStandstillsExcuse(t *testing.T) {
	t.Parallel()
	cut := append(run("x", "a", 0, 1, 0), run("x", "b", 1, 1, int64(time.Second))[:2]...)
	lost := []schedlock.Record{record("x", "b", 1, 1, schedlock.RunLost), record("x", "a", 0, 1, schedlock.RunDone)}
	ended := event{Way: bySchedlock, Kind: evResult, Job: "x", Tick: start.Add(time.Second), Outcome: schedlock.Lost.String(), Error: "run is lost", worker: "b"}
	still := func(kind, worker string, at time.Duration) event {
		return event{Kind: kind, At: int64(at), Took: int64(300 * time.Millisecond), worker: worker}
	}
	for name, x := range map[string]struct {
		events  []event
		still   event
		excused int
		want    string
	}{
		"etcd, and a lost run":           {append(cut, ended), still(evSilent, "", 1500*time.Millisecond), 2, ""},
		"a process, and a lost run":      {append(cut, ended), still(evStall, "a", 1500*time.Millisecond), 2, ""},
		"etcd, and a tick not started":   {run("x", "a", 0, 1, 0), still(evSilent, "", 1500*time.Millisecond), 1, ""},
		"long before":                    {append(cut, ended), still(evSilent, "", 500*time.Millisecond), 0, "is lost"},
		"long after":                     {append(cut, ended), still(evSilent, "", 5*time.Second), 0, "is lost"},
		"a process that was paused":      {append(cut, ended), still(evStall, "c", 1500*time.Millisecond), 0, "is lost"},
		"etcd, and a tick started twice": {append(append(cut, ended), run("x", "c", 1, 1, int64(2*time.Second))...), still(evSilent, "", 1500*time.Millisecond), 1, "started 2 times"},
	} {
		records := lost
		if len(x.events) < len(cut) {
			records = lost[1:]
		}
		members := map[string]*member{"c": {worker: "c", pauses: [][2]int64{{int64(time.Second), int64(2 * time.Second)}}}}
		v := judge(evidence{jobs: []job{jobOf("x", 0, 0)}, events: append(slices.Clone(x.events), x.still), members: members,
			history: map[string][]schedlock.Record{"x": records}, clock: hostTime{wall: start}})
		if v.Excused != x.excused || x.want == "" && len(v.Violations) > 0 || !strings.Contains(strings.Join(v.Violations, "\n"), x.want) {
			t.Errorf("%s: %d excused, violations: %q", name, v.Excused, v.Violations)
		}
		if paused := x.still.worker == "c"; paused != (v.Stalled == 0) {
			t.Errorf("%s: %g s", name, v.Stalled)
		}
	}
}
