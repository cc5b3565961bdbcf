package main

import (
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

func TestPlan(t *testing.T) {
	c := config{executions: 100, kill: 0.1, seed: 7}
	p := newPlan(c)
	if !reflect.DeepEqual(p, newPlan(c)) {
		t.Error("the same seed gives two plans")
	}
	c.seed = 8
	if reflect.DeepEqual(p, newPlan(c)) {
		t.Error("two seeds give the same plan")
	}
	ends := map[ending]int{}
	for e := range p.steps {
		attempt := 1
		for ; ; attempt++ {
			j := p.job(e, attempt)
			ends[j.End]++
			if j.Execution != e || j.Attempt != attempt || j.Steps != p.steps[e] || j.At > j.Steps {
				t.Fatalf("attempt %d at execution %d of %d steps: %+v", attempt, e, p.steps[e], j)
			}
			if j.End == succeeded {
				break
			}
		}
	}
	want := map[ending]int{succeeded: 100, failed: 6, panicked: 6, stuck: 3, killed: 10}
	if child.CanPause {
		want[paused] = 1
	}
	if !reflect.DeepEqual(ends, want) {
		t.Errorf("ends %v, want %v", ends, want)
	}
}

func TestPlanOfOne(t *testing.T) {
	p := newPlan(config{executions: 1, kill: 1})
	if n := len(p.ends[0]); n < 4 {
		t.Errorf("%d bad ends, want one of each kind", n)
	}
}

func TestIdeal(t *testing.T) {
	p := plan{steps: []int{5, 1, 2, 4}}
	for atATime, want := range map[int]int{1: 12, 2: 7, 3: 5, 4: 5, 100: 5} {
		if got := p.ideal(atATime); got != want {
			t.Errorf("%d at a time take %d steps, want %d", atATime, got, want)
		}
	}
	for _, c := range []config{{limit: 100, workers: 2, executions: 4}, {limit: 2, workers: 100, executions: 4}} {
		if r := newReport(c, p, newHistory(c), verdict{}, 0, 0); r.Ideal != (7 * step).Seconds() {
			t.Errorf("limit %d, %d workers: ideal %v", c.limit, c.workers, r.Ideal)
		}
	}
}

// A worker that has held a permit for longer than MaxHold is stuck and holds no permit.
func TestProgress(t *testing.T) {
	c := config{workers: 3, Common: program.Common{TTL: time.Second}}
	h := newHistory(c)
	h.add(event{Kind: evHold, Worker: 0, At: hostclock.Now()})
	h.add(event{Kind: evHold, Worker: 1, At: hostclock.Now() - int64(c.maxHold())})
	h.add(event{Kind: evWait, Worker: 2, At: hostclock.Now()})
	if s := h.progress(); s.holding != 1 || s.waiting != 1 {
		t.Errorf("%d holding, %d waiting", s.holding, s.waiting)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-limit", "0"}, {"-executions", "0"}, {"-workers", "0"}, {"-kill", "1.5"}, {"-kill", "NaN"}, {"-ttl", "500ms"}, {"-timeout", "0"}, {"-timeline", "x", "-history", "x"}, {"extra"},
	} {
		if _, err := parseFlags(args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	if c, err := parseFlags(nil, io.Discard); err != nil || c.limit != 5 || c.executions != 100 {
		t.Errorf("the defaults are refused: %+v, %v", c, err)
	}
}
