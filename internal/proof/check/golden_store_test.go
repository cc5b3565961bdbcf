package check

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// goldenStore are golden histories that break a rule of the store, and some beside them that do not.
var goldenStore = []goldenCase{
	{"over the limit", "belief/overlap linear/order store/limit", func(t *scenario) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.grant(c)
		t.gives(c)
	}},
	{"weight is not counted", "belief/overlap linear/order store/limit", func(t *scenario) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 2)
		t.grant(a)
		t.grant(b)
		t.gives(b)
	}},
	{"before the limit was raised", "linear/order store/early", func(t *scenario) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.askLimit(1, 0)
		t.grant(c)
		t.askLimit(3, 0)
	}},
	{"another overtakes", "store/order", func(t *scenario) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 2), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(c)
		t.gives(c)
		t.forget(b)
		t.gives(a)
		t.remove(b.req, "withdrawn")
		t.fails(b, "")
	}},
	{"over the limit, and evicted later", "belief/overlap linear/order store/limit (belief/stale)", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.evictOne(b.req)
		t.gives(a)
	}},
	{"one of three was evicted", "belief/overlap linear/order store/limit (belief/stale) (belief/overlap)", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.evictOne(a.req)
		t.grant(b)
		t.check(a)
		c := t.asks(2, t.mutex, 1)
		t.grant(c)
		t.check(a)
		t.check(b)
		t.gives(c)
	}},
	{"two hold, until the first one's lease ends", "belief/overlap linear/order", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.check(a)
		t.expire(t.clients[0])
	}},
	{"noticed too early", "belief/overlap linear/order store/early", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.gives(a)
	}},
	{"another weight", "store/weight", func(t *scenario) {
		a := t.asks(0, t.sem, 2)
		a.weight = 1
		t.grant(a)
	}},
	{"the token of another revision", "store/delete store/token", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		b := t.asks(1, t.sem, 1)
		token := a.req.token
		a.req.token = b.req.token + 5 // as if it were the header's
		t.grant(a)
		a.req.token = token
		t.forget(a, b)
		t.remove(b.req, "withdrawn")
		b.req = t.put(b)
		t.grant(b)
		b.state = "hold"
		t.remove(a.req, "released")
	}},
	{"the token of another's request", "store/token", func(t *scenario) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		a.req, b.req = b.req, a.req
		t.grant(a)
		t.grant(b)
	}},
	{"one token twice", "belief/overlap linear/order store/token", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		b := t.ask(t.clients[1], t.mutex, 1, false)
		b.req = a.req
		t.grant(b)
		t.check(a)
		t.forget(b)
	}},
	{"tokens fall", "belief/overlap belief/stale store/token", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		t.grant(a)
		t.check(b)
		t.end(a, history.Lost)
		t.forget(a)
	}},
	{"seen before it was asked for", "store/time", func(t *scenario) {
		a := t.ask(t.clients[0], t.sem, 1, false)
		call := len(t.events) - 1
		t.advance(a)
		t.now += 1_000_000
		t.events[call].At = t.now
		t.grant(a)
	}},
	{"a key is written again", "store/once", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.putAgain(a.req.key, a.req.lease)
		t.grant(a)
	}},
	{"a key is written again without a lease", "belief/stale store/delete store/once", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.putAgain(a.req.key, 0)
		a.req.leave("disowned")
		t.check(a)
		t.check(a)
		t.commit(change{key: a.req.key, del: true}, change{key: "request-id/semaphore/a/" + a.id, del: true})
		t.giveBack(a)
	}},
	{"two requests in one batch", "linear/order store/once", func(t *scenario) {
		a, b := t.ask(t.clients[0], t.sem, 1, false), t.ask(t.clients[1], t.sem, 1, false)
		var changes []change
		for i, c := range []*simCall{a, b} {
			c.req = &simReq{gate: t.sem, call: c, weight: 1, lease: c.client.lease, token: t.rev + 1}
			c.req.key = fmt.Sprintf("semaphore/a/queue/light/%016x-000%d", c.req.lease, i)
			t.sem.queue = append(t.sem.queue, c.req)
			changes = append(changes, change{key: c.req.key, lease: c.req.lease, value: record.Request{Note: history.Tag(c.client.name, c.op)}.Encode()})
		}
		t.commit(changes...)
		a.state, b.state = "queued", "queued"
		t.fails(a, "")
		t.fails(b, "")
		a.state, b.state = "withdraw", "withdraw"
	}},
	{"a key on another lease", "store/once", func(t *scenario) {
		a := t.ask(t.clients[0], t.sem, 1, false)
		name := t.clients[0].lease
		a.req = &simReq{gate: t.sem, call: a, weight: 1, lease: t.clients[1].lease, token: t.rev + 1, key: fmt.Sprintf("semaphore/a/queue/light/%016x-0000", name)}
		t.sem.queue = append(t.sem.queue, a.req)
		t.commit(change{key: a.req.key, lease: a.req.lease})
		a.state = "queued"
		t.fails(a, "")
		a.state = "withdraw"
	}},
	{"a limit that remembers too much", "store/through", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.askLimit(1, 0)
		b := t.asks(1, t.sem, 1)
		t.sem.above = b.req.token
		t.askLimit(2, 0)
		t.forget(a, b)
		t.fails(a, "")
		t.remove(a.req, "withdrawn")
		t.fails(b, "")
		t.remove(b.req, "withdrawn")
	}},
	{"a limit that forgets who holds", "store/through", func(t *scenario) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.sem.limit, t.sem.above = 1, 0 // it is lowered, and does not say so
		t.askLimit(1, 0)
	}},
	{"a settled limit that forgets who holds", "store/through", func(t *scenario) {
		t.grant(t.asks(0, t.sem, 1))
		t.grant(t.asks(1, t.sem, 1))
		t.storeLimit(record.Limit{Limit: 1, Previous: 2, Settled: true})
	}},
	{"a limit that knows the future admits no request", "belief/overlap linear/order store/limit", func(t *scenario) {
		a := t.asks(0, t.sem, 2)
		t.storeLimit(record.Limit{Limit: 3, Through: 10_000, Settled: true})
		b := t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.check(a)
		t.gives(b)
		t.storeLimit(record.Limit{Limit: 3, Through: a.req.token, Settled: true})
	}},
	{"status shows too few", "store/status", func(t *scenario) {
		t.grant(t.asks(0, t.sem, 1))
		t.statusOf(t.sem, -1)
	}},
	{"status shows too few while the limit cannot be read", "store/status", func(t *scenario) {
		t.grant(t.asks(0, t.sem, 1))
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + "semaphore/a/limit"}}, func() {
			t.commit(change{key: "semaphore/a/limit", value: `{"v":9,"limit":5}`})
		})
		t.statusOf(t.sem, -1)
		t.sem.known = false
		t.statusOf(t.sem, 1) // each request that may hold
	}},
	{"status shows too many", "store/status", func(t *scenario) { t.statusOf(t.sem, 1) }},
	{"deleted under its holder", "belief/stale store/delete", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.remove(a.req, "?")
		t.check(a)
		t.check(a)
		t.giveBack(a)
	}},
	{"deleted under its holder, as its release was reported", "store/delete", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.giveBack(a)
		t.remove(a.req, "?")
		t.returned(a, history.Fail)
		t.forget(a)
		t.now += 2e9 // its lease continues
	}},
	{"a release that fails with its lease", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.giveBack(a)
		t.remove(a.req, "released")
		t.returned(a, history.Fail)
		t.forget(a)
		t.expire(t.clients[0])
	}},
	{"a release that etcd confirms after the session's deadline", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		a.until = t.now + 1e9
		t.grant(a)
		t.giveBack(a)
		t.remove(a.req, "released")
		t.now = a.until + 1
		t.returned(a, history.Fail)
		t.forget(a)
		t.now += 2e9 // its lease was renewed, but the answer was lost
	}},
	{"a release that etcd confirms after the session was closed", "", func(t *scenario) { t.closesWhileItReleases(0) }},
	{"a release that etcd confirms after another session was closed", "store/delete", func(t *scenario) { t.closesWhileItReleases(1) }},
	{"a late release deletes the next request", "store/delete", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		b := t.asks(0, t.mutex, 1)
		t.remove(b.req, "late release")
		b.req = t.put(b)
		t.grant(b)
	}},
	{"asked to stop while it waited, and queued again", "", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.askToStop(a.req)
		t.remove(a.req, "withdrawn")
		a.req = t.put(a)
		t.grant(a)
	}},
	{"another was asked to stop", "store/delete", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		b := t.asks(1, t.mutex, 1)
		t.grant(a)
		t.askToStop(a.req)
		t.gives(a)
		t.remove(b.req, "withdrawn")
		b.req = t.put(b)
		t.grant(b)
	}},
	{"evicted without a call", "store/delete", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.evictOne(a.req)
		t.last(history.KindCall).ID = "another"
	}},
	{"a request outlives its presence key", "store/delete", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.commit(change{key: alive(a.req.lease), del: true})
		t.grant(a)
	}},
	{"a presence key that was put again without its lease, and deleted", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		key := alive(a.req.lease)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + key}}, func() { t.putAgain(key, 0) })
		t.now += 5e9
		t.commit(change{key: key, del: true})
		t.remove(a.req, "withdrawn")
		t.fails(a, "")
		t.forget(a)
		t.drop(a.req.lease, "revoked")
		t.open(t.clients[0])
	}},
	{"a release that deletes nothing", "store/left store/release", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.giveBack(a)
		t.returned(a, history.OK)
		t.forget(a)
		t.clients[0].lease = 7 // what is left goes with no lease
	}},
	{"a release that is confirmed too early", "store/release", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.giveBack(a)
		t.returned(a, history.OK)
		t.advance(t.ask(t.clients[1], t.mutex, 1, false)) // the revision before is later than the answer
		t.remove(a.req, "released")
		t.forget(a)
	}},
	{"a request that no call waits for", "store/left", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.fails(a, "")
		t.forget(a)
	}},
	{"a session that does not end", "store/left", func(t *scenario) { t.clients = t.clients[1:] }},
}
