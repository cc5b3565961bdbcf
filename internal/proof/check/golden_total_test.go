package check

import (
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// asksApart is a call of client n whose request at its key is written alone.
func (t *scenario) asksApart(n int, g *simGate, weight int64) *simCall {
	t.apart = true
	defer func() { t.apart = false }()
	return t.asks(n, g, weight)
}

// evictToken evicts the request of a call by a token of a queue.
func (t *scenario) evictToken(c *simCall, g *simGate, token int64) {
	t.evictOne(c.req)
	t.last(history.KindReturn).Name = history.EvictToken
	e := t.last(history.KindCall)
	e.Name, e.Gate, e.ID, e.Token = history.EvictToken, g.name, "", token
}

// half removes one of the two requests of a call.
func (t *scenario) half(r *simReq, how string) {
	r.leave(how)
	changes := []change{{key: r.key, del: true}}
	if r.id != "" {
		changes = append(changes, change{key: "request-id/" + r.gate.name + "/" + r.id, del: true})
	}
	t.commit(changes...)
}

// takesBack has a call withdraw its request and write another.
func (t *scenario) takesBack(c *simCall) {
	t.remove(c.req, "withdrawn")
	c.req = t.put(c)
}

// goldenTotal are golden histories of a limiter with a total: what is right, and each way to break it.
var goldenTotal = []goldenCase{
	{"three keys' requests hold, a fourth waits for the total", "", func(t *scenario) {
		a, b, c := t.asks(0, t.x, 1), t.asks(1, t.x, 1), t.asks(2, t.y, 1)
		d := t.asks(0, t.y, 1)
		for _, c := range []*simCall{a, b, c} {
			t.grant(c)
			t.byGuard(c)
		}
		for _, g := range []*simGate{t.x, t.y, t.total} {
			t.statusOf(g, 0)
		}
		t.gives(a)
		t.grant(d)
		t.byGuard(d)
	}},
	{"one that waits at its key joins the total when it is admitted there", "", func(t *scenario) {
		a, b, c := t.asks(0, t.x, 1), t.asks(1, t.x, 1), t.asks(2, t.x, 1)
		t.grant(a)
		t.grant(b)
		t.gives(a)
		t.join(c.req)
		t.grant(c)
		t.byGuard(c)
	}},
	{"evicted by the tokens of either level", "(belief/stale)", func(t *scenario) {
		a, b, c, d := t.asksApart(0, t.x, 1), t.asksApart(1, t.x, 1), t.asksApart(2, t.y, 1), t.asksApart(0, t.y, 1)
		for _, c := range []*simCall{a, b, c} {
			t.join(c.req)
			t.grant(c)
		}
		t.evictToken(a, t.x, a.token())
		t.evictToken(b, t.x, b.req.token)
		t.evictToken(c, t.total, c.token())
		t.evictToken(d, t.y, d.req.token)
		t.now += 100_000
		t.check(a)
	}},
	{"a lease takes both with it", "", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		t.grant(a)
		t.expire(t.clients[0])
	}},
	{"a total that is lowered and raised", "", func(t *scenario) {
		a, b := t.asks(0, t.x, 1), t.asks(1, t.y, 1)
		t.grant(a)
		t.grant(b)
		t.askTotal(1, 0)
		c := t.asks(2, t.x, 1)
		t.statusOf(t.total, 0)
		t.gives(a)
		t.check(b)
		t.askTotal(3, 1)
		t.grant(c)
	}},
	{"a default that is lowered while a request waits for the total", "", func(t *scenario) {
		a, b, c := t.asks(0, t.x, 1), t.asks(1, t.x, 1), t.asks(2, t.y, 1)
		d := t.asks(0, t.y, 1)
		t.askDefaultOf(t.x.base, 1, 0)
		for _, c := range []*simCall{a, b, c} {
			t.grant(c)
		}
		t.gives(a)
		t.grant(d) // it was admitted before
	}},
	{"a call that asks anew, since a limit has changed", "", func(t *scenario) {
		a := t.asksApart(0, t.x, 1)
		t.askDefaultOf(t.x.base, 3, 0)
		t.takesBack(a)
		t.grant(a)
	}},
	{"a call that asks anew for no reason", "store/delete", func(t *scenario) {
		a := t.asksApart(0, t.x, 1)
		t.takesBack(a)
		t.grant(a)
	}},
	{"a request at a key that is deleted by hand", "(belief/stale)", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + a.req.key}}, func() { t.half(a.req, "deleted by hand") })
		t.now += 100_000
		t.check(a)
	}},
	{"a request of the total that is deleted by hand", "", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + a.req.next.key}}, func() { t.half(a.req.next, "deleted by hand") })
		t.takesBack(a)
		t.grant(a)
	}},
	{"granted beyond the total", "belief/overlap linear/order store/limit", func(t *scenario) {
		for i, g := range []*simGate{t.x, t.x, t.y, t.y} {
			t.grant(t.asks(i%3, g, 1))
		}
		t.gives(t.calls[3])
	}},
	{"granted beyond the limit of the key, which the total has room for", "belief/overlap linear/order store/limit store/proof", func(t *scenario) {
		for i := range 3 {
			t.grant(func() *simCall {
				a := t.asks(i, t.x, 1)
				if a.req.next == nil {
					t.join(a.req)
				}
				return a
			}())
		}
		t.gives(t.calls[2])
	}},
	{"another overtakes in the total", "store/order", func(t *scenario) {
		t.askDefaultOf(t.x.base, 3, 0)
		a, b, c := t.asks(0, t.x, 2), t.asks(1, t.y, 2), t.asks(2, t.x, 1)
		t.grant(a)
		t.grant(c)
		t.gives(c)
		t.forget(b)
		t.gives(a)
		t.remove(b.req, "withdrawn")
		t.fails(b, "")
	}},
	{"granted before it has joined the total", "store/token", func(t *scenario) {
		t.grant(t.asksApart(0, t.x, 1))
	}},
	{"the token of the request at the key", "store/token", func(t *scenario) {
		a := t.asksApart(0, t.x, 1)
		t.join(a.req)
		next := a.req.next
		a.req.next = nil
		t.grant(a)
		t.giveBack(a)
		a.req.next = next
		t.advance(a)
	}},
	{"the token of another's request in the total", "store/token", func(t *scenario) {
		a, b := t.asks(0, t.x, 1), t.asks(1, t.y, 1)
		a.req, b.req = b.req, a.req
		t.grant(a)
		t.grant(b)
	}},
	{"a request of the total before that at the key", "store/ghost", func(t *scenario) {
		a := t.ask(t.clients[0], t.x, 1, false)
		r := &simReq{gate: t.x, call: a, weight: 1, lease: a.client.lease, key: "limiter/m/key/x/queue/light/00000000000003e9-0000"}
		t.join(r)
		t.forget(a)
		t.half(r.next, "withdrawn")
		t.fails(a, "")
	}},
	{"a request of the total with another place", "store/ghost", func(t *scenario) {
		a := t.asksApart(0, t.x, 1)
		c := t.nextOf(a.req)
		c.key = strings.TrimSuffix(c.key, "0") + "1"
		a.req.next.key = c.key
		t.commit(c)
		t.grant(a)
	}},
	{"half a removal", "store/ghost", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		t.fails(a, "")
		t.half(a.req, "withdrawn")
		t.half(a.req.next, "withdrawn")
		t.forget(a)
	}},
	{"the other half", "store/alone", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		t.fails(a, "")
		t.half(a.req.next, "withdrawn")
		t.half(a.req, "withdrawn")
		t.forget(a)
	}},
	{"evicted between the read of one and the write of the other", "store/ghost", func(t *scenario) {
		a := t.asksApart(0, t.x, 1)
		t.join(a.req)
		next := a.req.next
		a.req.next = nil
		t.evictOne(a.req)
		a.req.next = next
		t.fails(a, history.Gone)
		t.half(next, "swept")
		t.forget(a)
	}},
	{"a request of the total for one that waits at its key", "store/proof", func(t *scenario) {
		t.asks(0, t.x, 1)
		t.asks(1, t.x, 1)
		c := t.asks(2, t.x, 1)
		t.join(c.req)
	}},
	{"a request of the total for one that the default has shut out", "store/proof", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		b := t.asksApart(1, t.x, 1)
		t.askDefaultOf(t.x.base, 1, 0)
		t.join(b.req)
		t.grant(a)
		t.gives(a)
		t.grant(b)
	}},
	{"a total that forgets who holds", "store/through", func(t *scenario) {
		for i, g := range []*simGate{t.x, t.x, t.y} {
			t.grant(t.asks(i, g, 1))
		}
		t.total.limit = 1
		t.commit(change{key: t.total.name + "/limit", value: record.Limit{Limit: 1, Settled: true}.Encode()})
	}},
	{"status of the total shows too few", "store/status", func(t *scenario) {
		t.grant(t.asks(0, t.x, 1))
		t.statusOf(t.total, -1)
	}},
	{"a request of the total is left", "store/ghost store/left", func(t *scenario) {
		t.commit(change{key: "limiter/m/total/queue/light/0000000000000007-0000", value: "{}", lease: 7})
	}},
	{"a request that is admitted at its key does not join the total", "live/reported", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		a := t.asksApart(0, t.x, 1)
		t.now += 4e9
		t.join(a.req)
		t.grant(a)
	}},
	{"the caller of an admitted request of the total gets no answer", "live/reported", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		a := t.asksApart(0, t.x, 1)
		t.join(a.req)
		t.now += 4e9
		t.grant(a)
	}},
	{"a request waits for the total for long", "", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		for i, g := range []*simGate{t.x, t.x, t.y} {
			t.grant(t.asks(i, g, 1))
		}
		d := t.asks(0, t.y, 1)
		t.now += 4e9
		for _, c := range t.calls[:3] {
			t.check(c)
		}
		t.gives(t.calls[0])
		t.grant(d)
	}},
	{"a try is refused for nothing at either level", "live/refused", func(t *scenario) {
		t.x.known = false
		t.tryAt(t.clients[0], t.x)
		t.x.known = true
		t.gives(func() *simCall { c := t.asks(0, t.x, 1); t.grant(c); return c }())
	}},
	{"a try is refused because the total is full", "", func(t *scenario) {
		for i, g := range []*simGate{t.x, t.x, t.y} {
			t.grant(t.asks(i, g, 1))
		}
		t.tryAt(t.clients[0], t.y)
	}},
	{"a write by a guard of the total that has gone", "fence/guard", func(t *scenario) {
		a := t.asks(0, t.x, 1)
		t.grant(a)
		t.gives(a)
		e := t.event(a, history.KindEffect)
		e.Attr = map[string]string{"register": simPrefix + "reg/x", "mode": history.ModeGuard, "value": "late"}
		e.Outcome, e.Rev = history.OK, t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
}
