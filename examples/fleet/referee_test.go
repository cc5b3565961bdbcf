package main

import (
	"strings"
	"testing"
)

// script builds a history. Times are milliseconds and greater than 0.
type script struct{ events []event }

const ms = 1_000_000

// far is a deadline after the end of every script.
const far = 100_000

func (s *script) on(worker int, at int64, kind string) *event {
	s.events = append(s.events, event{At: at * ms, Kind: kind, Worker: worker, Process: 100 + worker, Execution: worker, Attempt: 1})
	return &s.events[len(s.events)-1]
}

// hold adds the request and the grant of a permit.
func (s *script) hold(worker int, wait, hold int64) {
	s.on(worker, wait, evWait)
	s.on(worker, hold, evHold)
}

func (s *script) step(worker int, begin, end, deadline int64) {
	s.on(worker, begin, evBegin).Deadline = deadline * ms
	if end > 0 {
		s.on(worker, end, evEnd)
	}
}

// release ends the work and the attempt of a worker that still holds its permit.
func (s *script) release(worker int, at int64) {
	s.on(worker, at, evReleasing).Deadline = far * ms
	s.on(worker, at+1, evDone).End = succeeded
}

// notices ends the work and the attempt of a worker that notices the loss of its permit.
func (s *script) notices(worker int, at, deadline int64, end ending) {
	e := s.on(worker, at, evReleasing)
	e.Deadline, e.Lost = deadline*ms, true
	s.on(worker, at+1, evDone).End = end
}

// whole adds an attempt without a failure.
func (s *script) whole(worker int, hold, back int64) {
	s.hold(worker, hold-5, hold)
	s.step(worker, hold+1, back-1, far)
	s.release(worker, back)
}

func TestReferee(t *testing.T) {
	tests := []struct {
		name       string
		limit      int
		history    func(*script)
		peak       int
		late       int
		violations []string // parts of them, in order
	}{
		{name: "nothing", limit: 1, history: func(*script) {}},
		{name: "one after the other", limit: 1, peak: 1, history: func(s *script) {
			s.whole(0, 10, 50)
			s.whole(1, 50, 90)
		}},
		{name: "side by side as allowed", limit: 2, peak: 2, history: func(s *script) {
			s.whole(0, 10, 50)
			s.whole(1, 20, 60)
			s.whole(2, 51, 90)
		}},
		{name: "too many", limit: 2, peak: 3, violations: []string{"3 were working at the same time under a limit of 2"}, history: func(s *script) {
			s.whole(0, 10, 50)
			s.whole(1, 20, 60)
			s.whole(2, 49, 90)
		}},
		{name: "a permit counts before its first step", limit: 1, peak: 2, violations: []string{"2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 80, 90, far)
			s.release(0, 95)
			s.whole(1, 20, 60)
		}},
		{name: "a step after the deadline", limit: 1, peak: 1, violations: []string{"worker 1, execution 0, attempt 1: step 2 begins 1ms after the permit's deadline"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 31, 40)
			s.step(0, 41, 61, 40)
			s.notices(0, 62, 40, lost)
		}},
		{name: "a step without a deadline", limit: 1, peak: 1, violations: []string{"after the permit's deadline"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 31, 0)
			s.release(0, 40)
		}},
		{name: "a kill ends the work", limit: 1, peak: 1, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 0, far)
			s.on(0, 20, evKill)
			s.whole(1, 21, 60)
		}},
		{name: "but not before it", limit: 1, peak: 2, violations: []string{"2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 0, far)
			s.on(0, 30, evKill)
			s.whole(1, 21, 60)
		}},
		{name: "the next process in the row", limit: 1, peak: 1, history: func(s *script) {
			s.hold(0, 5, 10)
			s.on(0, 20, evKill)
			s.whole(0, 30, 60)
			for i := range s.events[3:] {
				s.events[3+i].Process = 200
			}
		}},
		{name: "killed while it waits", limit: 1, peak: 1, history: func(s *script) {
			s.on(0, 5, evWait)
			s.on(0, 20, evKill)
			s.whole(1, 10, 60)
		}},
		{name: "a dead process continues", limit: 1, peak: 1, violations: []string{"step 0 begins in a dead process"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.on(0, 20, evKill)
			s.step(0, 30, 40, far)
		}},
		{name: "a stop ends the work and the step in flight may end", limit: 1, peak: 1, late: 1, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 0, 50)
			s.on(0, 15, evStop)
			s.whole(1, 60, 200)
			s.on(0, 100, evCont)
			s.on(0, 102, evEnd)
			s.notices(0, 103, 50, lost)
		}},
		{name: "a stop arrives late", limit: 1, peak: 2, violations: []string{"2 were working"}, late: 1, history: func(s *script) {
			s.hold(0, 5, 10)
			s.on(0, 15, evStop)
			s.step(0, 17, 0, 50)
			s.whole(1, 16, 80)
			s.on(0, 100, evCont)
			s.on(0, 102, evEnd)
			s.notices(0, 103, 50, lost)
		}},
		{name: "a step after the pause and the deadline", limit: 1, peak: 2, late: 1, violations: []string{"step 2 begins 53ms after", "2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 0, 50)
			s.on(0, 15, evStop)
			s.whole(1, 60, 200)
			s.on(0, 100, evCont)
			s.on(0, 102, evEnd)
			s.step(0, 103, 123, 50)
			s.notices(0, 124, 50, lost)
		}},
		{name: "a permit that outlives the pause counts again", limit: 1, peak: 2, late: 1, violations: []string{"2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 0, far)
			s.on(0, 15, evStop)
			s.whole(1, 60, 200)
			s.on(0, 100, evCont)
			s.on(0, 102, evEnd)
			s.release(0, 110)
		}},
		{name: "a loss ends the work before the worker notices", limit: 1, peak: 1, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 31, 50)
			s.whole(1, 51, 90)
			s.notices(0, 120, 50, stuck)
		}},
		{name: "but not a step that is in flight", limit: 1, peak: 2, violations: []string{"2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 60, 50)
			s.whole(1, 51, 90)
			s.notices(0, 61, 50, stuck)
		}},
		{name: "a loss before the deadline counts until it is noticed", limit: 1, peak: 2, violations: []string{"2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.step(0, 11, 31, 500)
			s.whole(1, 35, 90)
			s.notices(0, 40, 500, lost)
		}},
		{name: "work without a permit", limit: 1, peak: 2, violations: []string{"step 0 begins without a permit", "2 were working"}, history: func(s *script) {
			s.on(0, 5, evWait)
			s.step(0, 11, 31, far)
			s.release(0, 40)
			s.whole(1, 10, 60)
		}},
		{name: "work after the release", limit: 1, peak: 2, violations: []string{"step 0 begins after the release of the permit", "2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.on(0, 20, evReleasing)
			s.step(0, 31, 45, far)
			s.whole(1, 40, 60)
		}},
		{name: "an attempt without an end", limit: 1, peak: 2, violations: []string{"2 were working"}, history: func(s *script) {
			s.hold(0, 5, 10)
			s.whole(1, 40, 60)
		}},
		{name: "events outside of an attempt", limit: 1, violations: []string{`"begin" outside of an attempt`, `"end" outside of an attempt`}, history: func(s *script) {
			s.step(0, 10, 20, far)
		}},
		{name: "a leaked permit", limit: 1, peak: 1, violations: []string{"still in etcd after it ended"}, history: func(s *script) {
			s.whole(0, 10, 50)
			s.events[len(s.events)-1].Leaked = 1
		}},
		{name: "the order of reports does not matter", limit: 1, peak: 1, history: func(s *script) {
			s.whole(1, 50, 90)
			s.whole(0, 10, 50)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s script
			tt.history(&s)
			v := judge(s.events, tt.limit)
			if v.Peak != tt.peak || v.Late != tt.late || len(v.Violations) != len(tt.violations) {
				t.Fatalf("peak %d, late %d, violations %q; want %d, %d, %q", v.Peak, v.Late, v.Violations, tt.peak, tt.late, tt.violations)
			}
			for i, want := range tt.violations {
				if !strings.Contains(v.Violations[i], want) {
					t.Errorf("violation %q, want %q", v.Violations[i], want)
				}
			}
		})
	}
}
