package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// goldenBelief are golden histories that break a rule of beliefs alone.
var goldenBelief = []goldenCase{
	{"held after the key had gone", "belief/stale", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.check(a)
		t.end(a, history.Lost)
	}},
	{"two hold after an expiry", "belief/overlap belief/stale", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		t.check(a)
		t.end(a, history.Lost)
		t.check(b)
	}},
	{"a nemesis that was not at work", "belief/stale", func(t *scenario) {
		t.set(SettingEarly, "stop leader")
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "stop leader"}, func() {})
		t.now += 2e9 // more than a TTL later
		t.check(a)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.check(a)
		t.end(a, history.Lost)
	}},
	{"another lease was revoked", "belief/stale", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "revoke", Lease: a.req.lease + 1}, func() {})
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.check(a)
		t.end(a, history.Lost)
	}},
	{"held after its deadline", "belief/deadline", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		a.until = t.now
		t.now += 20_000_000
		t.check(a)
		t.gives(a)
	}},
	{"back from the dead", "belief/terminal", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.end(a, history.Lost)
		t.check(a)
	}},
}
