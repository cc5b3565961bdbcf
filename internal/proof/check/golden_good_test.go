package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// goldenGood are golden histories of what is right, and of the exceptions that the promises name.
var goldenGood = []goldenCase{
	{"nothing happens", "", func(*scenario) {}},
	{"one after the other", "", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.byToken(a)
		t.gives(a)
		t.grant(b)
		t.byToken(b)
	}},
	{"a lowered limit takes nothing back", "", func(t *scenario) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.askLimit(1, 0)
		t.statusOf(t.sem, 0)
		t.gives(a)
		t.check(b)
		t.gives(b)
		t.grant(c)
	}},
	{"a heavy request is served in order", "", func(t *scenario) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 2), t.asks(2, t.sem, 1)
		t.grant(a)
		t.gives(a)
		t.grant(b)
		t.gives(b)
		t.grant(c)
	}},
	{"an expiry that its holder knew of", "", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.expire(t.clients[0])
		t.grant(b)
		t.gives(a)
	}},
	{"an eviction that its holder did not know of", "(belief/stale) (belief/overlap)", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.evictOne(a.req)
		t.grant(b)
		t.check(a)
		t.byGuard(a)
		t.end(a, history.Evicted)
	}},
	{"a lease that etcd ends early", "(belief/stale) (belief/overlap)", func(t *scenario) {
		t.set(SettingEarly, "a, stop leader")
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "stop leader"}, func() {})
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		t.check(a)
	}},
	{"a presence key deleted by hand", "", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + alive(a.req.lease)}}, func() {
			t.commit(change{key: alive(a.req.lease), del: true})
		})
		t.end(a, history.Lost)
		t.drop(a.req.lease, "revoked")
		t.open(t.clients[0])
	}},
	{"a permit whose call did not return", "", func(t *scenario) {
		a := t.asks(0, t.sem, 2)
		t.fails(a, "")
		a.state = "withdraw"
		t.advance(a)
	}},
	{"a late stamp proves nothing", "", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		e := t.event(a, history.KindReturn) // it had the permit, but its process was stopped
		e.Outcome = history.OK
		t.emit(e)
		t.emit(t.event(a, history.KindGranted))
		t.end(a, history.Lost)
		t.forget(a)
	}},
	{"a try is refused for a reason", "", func(t *scenario) {
		a := t.asks(0, t.sem, 2)
		t.grant(a)
		t.tryAt(t.clients[1], t.sem)
	}},
	{"a limit deleted by hand forgets who holds", "(store/through)", func(t *scenario) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.askLimit(1, 0)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + "semaphore/a/limit"}}, func() {
			t.commit(change{key: "semaphore/a/limit", del: true})
		})
		above := t.sem.above
		t.sem.above = 0
		t.setLimit(t.sem, 1, true, 0)
		t.statusOf(t.sem, -1)
		t.sem.above = above
	}},
	{"MaxHold gives a permit back, and word of it comes late", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		a.until = t.now + 500
		t.check(a)
		t.now += 1000
		t.remove(a.req, "held too long")
		t.now += 1_000_000
		t.end(a, history.Released)
		t.giveBack(a)
	}},
	{"MaxHold ends a permit before its holder looks at it", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grantUnseen(a)
		t.now += 1000
		t.remove(a.req, "held too long")
		t.now += 1_000_000
		t.end(a, history.HeldTooLong)
	}},
	{"MaxHold ends a permit, and its process is killed before that is recorded", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		a.until = t.now + 1_000_000
		t.grant(a)
		a.state, a.ended = "done", true // it records nothing any more
		t.now = a.until + 1000
		t.remove(a.req, "held too long")
	}},
	{"an eviction that the tap saw late", "(belief/overlap)", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.tapAt = t.now + 1_000_000
		t.evictOne(a.req)
		t.grant(b)
		t.now = t.tapAt - 1 - 1000
		t.check(a) // at the very time
		t.check(b)
		t.end(a, history.Evicted)
	}},
	{"an eviction that the tap saw when a release was called already", "", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.end(a, history.Released)
		t.tapAt = t.now + 1_000_000
		t.evictOne(a.req)
		t.grant(b)
		t.giveBack(a)
		t.now = t.tapAt
		t.returned(a, history.OK) // its answer was lost, and the key is gone
		t.forget(a)
	}},
	{"a value that was put elsewhere", "", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.commit(change{key: "reg/y", value: "late"})
		t.emit(history.Event{Kind: history.KindEffect, Client: "c0", Gate: "mutex/m", Token: a.req.token, Outcome: history.Unknown,
			Attr: map[string]string{"register": simPrefix + "reg/x", "value": "late", "mode": history.ModeGuard}})
	}},
	{"a call that returns late, because all was stopped", "", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.now += 3e9
		t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 2.5e9})
	}},
	{"a call of a process that is stopped", "", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		a, b := t.asks(0, t.sem, 1), t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.nemesis(history.Event{Name: "stop process", Client: "c0"}, func() { t.now += 6e9 })
		t.drop(b.req.lease, "expired")
		t.open(t.clients[0])
	}},
	{"the run is never marked healthy", "", func(t *scenario) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.fails(b, "")
		b.state = "withdraw"
		t.now += 10e9
		t.grant(a)
		c := t.asks(2, t.sem, 1)
		t.drop(c.req.lease, "expired")
		t.open(t.clients[2])
		t.now += 10e9
		t.skipHealthy = true
	}},
	{"a status that takes long", "", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		t.statusOf(t.sem, 0)
		back := t.last(history.KindReturn)
		t.now += 4e9
		back.At = t.now
	}},
	{"a try at a limit that cannot be read", "", func(t *scenario) {
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + "semaphore/a/limit"}}, func() {
			t.commit(change{key: "semaphore/a/limit", value: `{"v":9,"limit":5}`})
		})
		t.sem.known = false
		t.tryAt(t.clients[0], t.sem)
		t.commit(change{key: "semaphore/a/limit", del: true})
		t.setLimit(t.sem, 2, true, 0)
	}},
	{"a key that a nemesis planted", "", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.nemesis(history.Event{Name: "plant", Attr: map[string]string{"key": simPrefix + "mutex/m/queue/light/0000000000000001-00aa"}}, func() {
			t.commit(change{key: "mutex/m/queue/light/0000000000000001-00aa", value: `{"v":1,"owner":"c0"}`, lease: 1})
		})
		t.now += 20e9
		t.commit(change{key: "mutex/m/queue/light/0000000000000001-00aa", del: true})
	}},
	{"a key that asks a mutex for more than there can be", "", func(t *scenario) {
		key := "mutex/m/queue/heavy/2/0000000000000001-00aa"
		t.nemesis(history.Event{Name: "plant", Attr: map[string]string{"key": simPrefix + key}}, func() {
			t.commit(change{key: key, value: "planted", lease: 1})
		})
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.commit(change{key: key, del: true})
	}},
	{"a key that no call waits for, while all was stopped", "", func(t *scenario) {
		t.settle()
		t.mark(history.MarkHealthy)
		t.skipHealthy = true
		a := t.asks(0, t.sem, 1)
		t.fails(a, "")
		a.state = "withdraw"
		t.now += 7e9
		t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 6e9})
	}},
	{"a call whose context had ended before", "", func(t *scenario) {
		t.now += 3e9
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now - 2e9
	}},
	{"a raised limit need not remember", "", func(t *scenario) {
		t.grant(t.asks(0, t.sem, 1))
		t.storeLimit(record.Limit{Limit: 2, Settled: true})
	}},
	{"a lowered limit that is not settled yet", "", func(t *scenario) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.storeLimit(record.Limit{Limit: 1, Previous: 2})
		t.statusOf(t.sem, 0)
		t.gives(a)
		c := t.asks(2, t.sem, 1)
		t.statusOf(t.sem, 1) // who came later can be no holder, but one who left may have been
		t.gives(b)
		t.grant(c)
	}},
	{"a key that lost its lease and got it back", "(store/once)", func(t *scenario) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + a.req.key}}, func() {
			t.putAgain(a.req.key, 0)
			t.statusOf(t.sem, -1)
			t.putAgain(a.req.key, a.req.lease)
			t.statusOf(t.sem, 0)
		})
		t.check(a)
	}},
}
