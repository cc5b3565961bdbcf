package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// goldenLive are golden histories that break a rule of what happens at last, and of the order of calls.
var goldenLive = []goldenCase{
	{"released well after expiry", "linear/order", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		a.ended, a.state = true, "done"
		a.release = 900
		t.emit(history.Event{Kind: history.KindEnded, Client: "c0", Op: a.op, Held: a.held, Cause: history.Released})
		t.now += 1_000_000
		t.emit(history.Event{Kind: history.KindCall, Client: "c0", Op: 900, Name: history.Release, Gate: "mutex/m", Token: a.req.token})
		t.returned(a, history.OK)
	}},
	{"a call that returns too late", "live/late", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.now += 3e9
	}},
	{"a call that returns late, and other things were stopped", "live/late", func(t *scenario) {
		t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 2.5e9})
		t.now += 1e9
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.now += 3e9
		t.emit(history.Event{Kind: history.KindCount, Name: "something else", N: 2.5e9})
		t.grant(a)
		t.now += 3e9
		t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 2.5e9})
	}},
	{"a call that returns late, and others were stopped", "live/late", func(t *scenario) {
		t.nemesis(history.Event{Name: "stop process", Client: "c0"}, func() {})
		t.now += 2e9
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.nemesis(history.Event{Name: "stop process", Client: "c1"}, func() { t.now += 3e9 })
		t.grant(a)
		t.nemesis(history.Event{Name: "stop process", Client: "c0"}, func() {})
	}},
	{"a call whose context had ended before", "", func(t *scenario) {
		t.now += 5e9
		t.asks(0, t.sem, 1)
		t.last(history.KindCall).Until = t.now - 5e9
	}},
	{"a call that returns late, for its process was stopped", "", func(t *scenario) { t.lateAfterStall("c0") }},
	{"a call that returns late, while another's process was stopped", "live/late", func(t *scenario) { t.lateAfterStall("c1") }},
	{"a call that never returns", "live/late", func(t *scenario) {
		a := t.ask(t.clients[0], t.sem, 1, false)
		t.last(history.KindCall).Until = t.now
		t.forget(a)
		t.now += 3e9
	}},
	{"a refusal without a reason", "live/refused", func(t *scenario) {
		t.sem.known = false
		t.tryAt(t.clients[0], t.sem)
		t.sem.known = true
	}},
	{"admitted, and the call does not return", "live/reported", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		a := t.asks(0, t.sem, 1)
		t.now += 4e9
		t.grant(a)
		t.skipHealthy = true
	}},
	{"admitted and returned late, for etcd was slow", "", func(t *scenario) { t.reportedLate(CountSlow, 2e9) }},
	{"admitted and returned late, for its process was stopped", "", func(t *scenario) { t.reportedLate(CountStall, 2e9) }},
	{"admitted and returned later than etcd was slow", "live/reported", func(t *scenario) { t.reportedLate(CountSlow, 5e8) }},
	{"a call that returns late, while etcd was slow", "live/late", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.now += 3e9
		t.emit(history.Event{Kind: history.KindCount, Name: CountSlow, N: 2.5e9})
		t.grant(a)
	}},
	{"waiting for nothing", "live/forgotten", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		a := t.asks(0, t.sem, 1)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.now += 4e9
		t.fails(a, history.Gone)
		t.forget(a)
		t.skipHealthy = true
	}},
	{"a key that no call waits for any more", "live/left", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		a := t.asks(0, t.sem, 1)
		t.fails(a, "")
		a.state = "withdraw"
		t.now += 7e9
		t.skipHealthy = true
	}},
}
