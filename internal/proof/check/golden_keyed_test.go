package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// goldenKeyed are golden histories of a key of a limiter: what is right, and each way to break it.
var goldenKeyed = []goldenCase{
	{"a key has the default, then a limit of its own, then the default", "", func(t *scenario) {
		a, b, c := t.asks(0, t.keyed, 1), t.asks(1, t.keyed, 1), t.asks(2, t.keyed, 1)
		t.grant(a)
		t.grant(b)
		t.askOwn(t.keyed, 3, 0)
		t.grant(c)
		t.statusOf(t.keyed, 0)
		t.askDefault(1, 1) // not for this key
		d := t.asks(0, t.keyed, 1)
		t.gives(a)
		t.grant(d)
		t.askClear(t.keyed, 1)
		e := t.asks(1, t.keyed, 1)
		t.statusOf(t.keyed, 0)
		t.gives(b)
		t.gives(c)
		t.gives(d)
		t.grant(e)
		t.byGuard(e)
	}},
	{"a default that is changed after a limit was cleared", "", func(t *scenario) {
		t.askOwn(t.keyed, 1, 0)
		t.askClear(t.keyed, 0)
		t.askDefault(3, 0)
		for i := range 3 {
			t.grant(t.asks(i, t.keyed, 1))
		}
	}},
	{"a lowered default takes nothing back, and more may hold than do", "", func(t *scenario) {
		a := t.asks(0, t.keyed, 1)
		b := t.asks(1, t.keyed, 1)
		t.grant(a)
		t.grant(b)
		t.askDefault(1, 0)
		t.statusOf(t.keyed, 0)
		t.gives(a)
		c := t.asks(2, t.keyed, 1)
		t.statusOf(t.keyed, 1) // one that has left may have been a holder
		t.check(b)
		t.gives(b)
		t.grant(c)
	}},
	{"an admission that the default took back before its caller saw it", "", func(t *scenario) {
		a, b := t.asks(0, t.keyed, 1), t.asks(1, t.keyed, 1)
		t.grant(a)
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		t.askDefault(1, 0)
		t.now += 10e9
		t.check(a)
		t.gives(a)
		t.grant(b)
	}},
	{"a default that was deleted by hand", "(store/through)", func(t *scenario) {
		t.grant(t.asks(0, t.keyed, 1))
		t.grant(t.asks(1, t.keyed, 1))
		t.askDefault(1, 0)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + "limiter/l/default"}}, func() {
			t.commit(change{key: "limiter/l/default", del: true})
			t.storeDefault(record.Limit{Limit: 1, Settled: true})
		})
		t.base.previous = 0
		t.statusOf(t.keyed, -1)
	}},
	{"granted beyond the default", "belief/overlap linear/order store/limit", func(t *scenario) {
		a, b, c := t.asks(0, t.keyed, 1), t.asks(1, t.keyed, 1), t.asks(2, t.keyed, 1)
		t.grant(a)
		t.grant(b)
		t.grant(c)
		t.gives(c)
	}},
	{"granted by a default that was lowered before the deletion that made room", "linear/order store/limit", func(t *scenario) {
		t.askDefault(3, 0)
		a, b, c := t.asks(0, t.keyed, 1), t.asks(1, t.keyed, 1), t.asks(2, t.keyed, 1)
		d := t.asks(0, t.keyed, 1)
		t.grant(a)
		t.grant(b)
		t.grant(c)
		t.askDefault(1, 0)
		t.gives(a)
		t.grant(d)
		t.check(b)
		t.check(c)
		t.gives(d)
	}},
	{"granted by the default although the key has a lower limit", "belief/overlap linear/order store/limit", func(t *scenario) {
		t.askOwn(t.keyed, 1, 0)
		a, b := t.asks(0, t.keyed, 1), t.asks(1, t.keyed, 1)
		t.grant(a)
		t.grant(b)
		t.gives(b)
	}},
	{"granted by a limit that was cleared before", "belief/overlap linear/order store/limit", func(t *scenario) {
		t.askOwn(t.keyed, 3, 0)
		t.askClear(t.keyed, 0)
		a, b, c := t.asks(0, t.keyed, 1), t.asks(1, t.keyed, 1), t.asks(2, t.keyed, 1)
		t.grant(a)
		t.grant(b)
		t.grant(c)
		t.gives(c)
	}},
	{"a lowered default that does not say what it replaced", "store/through", func(t *scenario) {
		t.grant(t.asks(0, t.keyed, 1))
		t.grant(t.asks(1, t.keyed, 1))
		t.base.limit = 1
		t.storeDefault(record.Limit{Limit: 1, Settled: true})
	}},
	{"a limit of its own that is deleted when it is cleared", "store/through", func(t *scenario) {
		t.askOwn(t.keyed, 3, 0)
		for i := range 3 {
			t.grant(t.asks(i, t.keyed, 1))
		}
		t.keyed.owned, t.keyed.limit = false, t.base.limit
		t.commit(change{key: t.keyed.name + "/limit", del: true})
	}},
	{"a cleared limit that remembers too much", "store/through", func(t *scenario) {
		a := t.asks(0, t.keyed, 2)
		b := t.asks(1, t.keyed, 1)
		t.setOwn(t.keyed, record.Limit{Limit: 2, Through: b.req.token, Settled: true, Inherit: true})
		t.forget(a, b)
		t.fails(a, "")
		t.remove(a.req, "withdrawn")
		t.fails(b, "")
		t.remove(b.req, "withdrawn")
	}},
	{"status of a key shows too few", "store/status", func(t *scenario) {
		t.grant(t.asks(0, t.keyed, 1))
		t.statusOf(t.keyed, -1)
	}},
	{"status of a key shows too many", "store/status", func(t *scenario) { t.statusOf(t.keyed, 1) }},
	{"the caller of a key's request gets no answer", "live/reported", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		a := t.asks(0, t.keyed, 1)
		t.now += 4e9
		t.askDefault(1, 0)
		t.askDefault(2, 0)
		t.grant(a)
	}},
	{"a try of a key is refused for nothing", "live/refused", func(t *scenario) {
		t.keyed.known = false
		t.tryAt(t.clients[0], t.keyed)
		t.keyed.known = true
		t.gives(func() *simCall { c := t.asks(0, t.keyed, 1); t.grant(c); return c }())
	}},
	{"an ID of a key is left", "store/left", func(t *scenario) {
		t.commit(change{key: "request-id/limiter/l/key/k/x", value: "{}", lease: 7})
	}},
}
