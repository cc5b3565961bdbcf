package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// takes records calls for tokens of a rate of 10 per second with a burst of 3, each of which takes so long.
func (t *scenario) takes(n int, each int64) {
	for range n {
		e := history.Event{Client: "c9", Op: int64(len(t.events)) + 1_000_000, Name: history.RateTake, Gate: "rate/r"}
		call, ret := e, e
		call.Kind, call.Attr = history.KindCall, map[string]string{"persecond": "10", "burst": "3"}
		ret.Kind, ret.Outcome = history.KindReturn, history.OK
		t.emit(call)
		t.now += each
		t.emit(ret)
	}
}

// sets records a call that sets another rate.
func (t *scenario) sets(outcome history.Outcome) {
	e := history.Event{Client: "c9", Op: int64(len(t.events)) + 1_000_000, Name: history.RateSet, Gate: "rate/r"}
	call, ret := e, e
	call.Kind, call.Attr = history.KindCall, map[string]string{"persecond": "20", "burst": "4"}
	ret.Kind, ret.Outcome = history.KindReturn, outcome
	t.emit(call)
	t.emit(ret)
}

// strikes records a nemesis.
func (t *scenario) strikes(e history.Event) {
	e.Op = int64(len(t.events)) + 1_000_000
	begin, finish := e, history.Event{Kind: history.KindFinish, Op: e.Op, Name: e.Name}
	begin.Kind = history.KindBegin
	t.emit(begin)
	t.emit(finish)
}

// goldenRates are golden histories of a rate.
var goldenRates = []goldenCase{
	{"a burst", "", func(t *scenario) { t.takes(3, 0) }},
	{"more than a burst", "rates/exceeded", func(t *scenario) { t.takes(4, 0) }},
	{"a burst, and the rate", "", func(t *scenario) { t.takes(3, 0); t.takes(20, 1e8) }},
	{"more than the rate for long", "rates/exceeded", func(t *scenario) { t.takes(40, 8e7) }},
	{"a call that may have succeeded long before", "", func(t *scenario) { t.takes(1, 1e9); t.takes(3, 0) }},
	{"twice the rate after a change to it", "", func(t *scenario) { t.takes(3, 0); t.sets(history.OK); t.takes(4, 0) }},
	{"a change that may be made", "", func(t *scenario) { t.sets(history.Unknown); t.takes(7, 0) }},
	{"more than both bursts", "rates/exceeded", func(t *scenario) { t.sets(history.OK); t.takes(8, 0) }},
	{"beside a lease that was ended by hand", "", func(t *scenario) {
		t.takes(3, 0)
		t.strikes(history.Event{Name: "revoke", Lease: 77})
		t.takes(9, 0)
		t.now += 3e9
		t.takes(3, 0)
	}},
	{"long after a lease was ended by hand", "rates/exceeded", func(t *scenario) {
		t.strikes(history.Event{Name: "revoke", Lease: 77})
		t.now += 3e9
		t.takes(4, 0)
	}},
	{"beside what is no exception", "rates/exceeded", func(t *scenario) {
		t.takes(3, 0)
		t.strikes(history.Event{Name: "kill-server"})
		t.takes(1, 0)
	}},
}
