package check

import "github.com/etcdkit/etcdkit/internal/proof/history"

// shares is a shared call of client n with its request, granted.
func (t *scenario) shares(n int) *simCall {
	c := t.askShared(t.clients[n], t.sem)
	t.advance(c)
	t.grant(c)
	return c
}

// goldenShared are golden histories of keys that serve several calls of a process: what is right, and
// each way to break it.
var goldenShared = []goldenCase{
	{"a key serves one call after the other", "", func(t *scenario) {
		a, b := t.shares(0), t.shares(1)
		c := t.asks(2, t.sem, 1)
		a = t.passOn(t.passOn(a))
		t.byGuard(a)
		t.gives(a)
		t.grant(c)
		t.gives(t.passOn(b))
	}},
	{"a key that serves another call after a limit was lowered", "", func(t *scenario) {
		a, b := t.shares(0), t.shares(1)
		t.askLimit(1, 2)
		a = t.passOn(a)
		t.gives(a)
		c := t.asks(2, t.sem, 1)
		b = t.passOn(b)
		t.gives(b)
		t.grant(c)
	}},
	{"a shared key whose lease ended", "", func(t *scenario) {
		a := t.passOn(t.shares(0))
		t.expire(t.clients[0])
		t.gives(a)
	}},
	{"an eviction from a shared key that its holder did not know of", "(belief/stale)", func(t *scenario) {
		a := t.passOn(t.shares(0))
		a.req.id = "x" // by its token, as EvictToken does
		t.evictOne(a.req)
		for i := range t.events {
			if e := &t.events[i]; e.Name == history.Evict {
				e.Name, e.ID, e.Token = history.EvictToken, "", a.req.token
			}
		}
		t.check(a)
		t.end(a, history.Evicted)
	}},
	{"a key that serves two calls at once", "belief/twice", func(t *scenario) {
		a := t.shares(0)
		b := t.serves(a, t.clients[0])
		t.passOn(a)
		t.check(b)
		t.end(b, history.Released)
		t.forget(b)
	}},
	{"two calls share a key beside another holder", "belief/overlap belief/twice", func(t *scenario) {
		a := t.shares(0)
		t.shares(1)
		b := t.serves(a, t.clients[0])
		t.passOn(a)
		t.check(b)
		t.end(b, history.Released)
		t.forget(b)
	}},
	{"a key serves the call of another process", "store/token", func(t *scenario) {
		a := t.shares(0)
		t.check(a)
		t.end(a, history.Released)
		t.forget(a)
		t.serves(a, t.clients[1])
	}},
	{"a shared key serves a call that shares none", "store/early store/time store/token", func(t *scenario) {
		a := t.passOn(t.shares(0))
		t.check(a)
		t.end(a, history.Released)
		t.forget(a)
		b := t.ask(t.clients[0], t.sem, 1, false)
		b.req = a.req
		t.grant(b)
	}},
	{"a key serves another call after its guard was used", "fence/shown", func(t *scenario) {
		a := t.shares(0)
		t.byGuard(a)
		t.passOn(a)
	}},
	{"a MaxHold of a former call", "belief/stale store/delete", func(t *scenario) {
		a := t.passOn(t.shares(0))
		t.remove(a.req, "held too long")
		t.check(a)
	}},
	{"a shared key that was removed under its holder", "store/delete", func(t *scenario) {
		a := t.passOn(t.shares(0))
		t.remove(a.req, "held too long")
		t.now += 1_000_000
		t.end(a, history.Lost)
	}},
	{"a release of a shared key that did nothing", "store/left store/release", func(t *scenario) {
		a := t.passOn(t.shares(0))
		t.giveBack(a)
		t.returned(a, history.OK)
		t.forget(a)
	}},
	{"a shared key in use whose weight was granted to others", "belief/overlap linear/order store/limit", func(t *scenario) {
		a, b := t.passOn(t.shares(0)), t.passOn(t.shares(1))
		c := t.asks(2, t.sem, 1)
		t.grant(c)
		t.gives(c)
		t.gives(a)
		t.gives(b)
	}},
}
