package check

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// tale is a sim that is told what to do, rule or no rule. Its semaphore begins with
// a limit of 2, and its clients are c0 to c2.
type tale struct {
	*sim
	sem, mutex *simGate
}

func newTale() *tale {
	s := &sim{now: 1_000_000, rev: 10, keys: map[string]history.KV{}, written: map[string]int64{}}
	s.pick = func(n int) int { return min(1, n-1) } // a limit of 2; no answer is lost
	s.begin()
	return &tale{sim: s, sem: s.gates[0], mutex: s.gates[1]}
}

// asks is a call of client n with its request.
func (t *tale) asks(n int, g *simGate, weight int64) *simCall {
	c := t.ask(t.clients[n], g, weight, true)
	t.advance(c)
	return c
}

// gives is a release from its first to its last step.
func (t *tale) gives(c *simCall) {
	t.giveBack(c)
	t.advance(c)
}

// forget makes a call a matter of the past: finish leaves it alone.
func (t *tale) forget(calls ...*simCall) {
	for _, c := range calls {
		c.state = "done"
	}
}

// storeLimit stores a limit as it stands.
func (t *tale) storeLimit(r record.Limit) {
	t.commit(change{key: "sem/a/limit", value: r.Encode()})
	t.sem.limit, t.sem.known = r.Limit, r.Through < t.rev
	t.admit(t.sem)
}

// last returns the last event of a kind.
func (t *tale) last(kind history.Kind) *history.Event {
	for i := len(t.events) - 1; i >= 0; i-- {
		if t.events[i].Kind == kind {
			return &t.events[i]
		}
	}
	panic("no such event")
}

// callOf returns the event of a call.
func (t *tale) callOf(c *simCall) *history.Event {
	return &t.events[slices.IndexFunc(t.events, func(e history.Event) bool { return e.Op == c.op && e.Kind == history.KindCall })]
}

func (t *tale) set(name, value string) {
	t.emit(history.Event{Kind: history.KindSet, Name: name, Attr: map[string]string{"value": value}})
}

// putAgain writes a key once more.
func (t *tale) putAgain(key string, lease int64) {
	t.commit(change{key: key, value: "again", lease: lease})
}

// closesWhileItReleases has a release of c0 fail before etcd confirms it, after a
// client began to close its session.
func (t *tale) closesWhileItReleases(client int) {
	a := t.asks(0, t.sem, 1)
	t.grant(a)
	t.giveBack(a)
	t.emit(history.Event{Kind: history.KindCall, Client: t.clients[client].name, Op: 99, Name: history.Close, Lease: t.clients[client].lease})
	t.returned(a, history.Fail)
	t.remove(a.req, "released")
	t.forget(a)
	t.now += 2e9 // its lease goes on, for Close did not reach etcd
}

// lateAfterStall has a call of c0 return too late, after a client's process stood
// still.
func (t *tale) lateAfterStall(client string) {
	a := t.asks(0, t.sem, 1)
	t.events[slices.IndexFunc(t.events, func(e history.Event) bool { return e.Op == a.op && e.Kind == history.KindCall })].Until = t.now
	t.now += 3e9
	t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 3e9, Client: client})
}

// story is a golden history, of a few steps. killers are all who find a rule broken,
// as "checker/rule": none in a good history. What is excused stands in brackets.
type story struct {
	name    string
	killers string
	tell    func(t *tale)
}

// golden histories of permits. Those of jobs are in golden_jobs_test.go.
var golden = []story{
	{"nothing happens", "", func(*tale) {}},
	{"one after the other", "", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.byToken(a)
		t.gives(a)
		t.grant(b)
		t.byToken(b)
	}},
	{"a lowered limit takes nothing back", "", func(t *tale) {
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
	{"a heavy request is served in order", "", func(t *tale) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 2), t.asks(2, t.sem, 1)
		t.grant(a)
		t.gives(a)
		t.grant(b)
		t.gives(b)
		t.grant(c)
	}},
	{"an expiry that its holder knew of", "", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.expire(t.clients[0])
		t.grant(b)
		t.gives(a)
	}},
	{"an eviction that its holder did not know of", "(belief/stale) (belief/overlap)", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.evictOne(a.req)
		t.grant(b)
		t.check(a)
		t.byGuard(a)
		t.end(a, history.Evicted)
	}},
	{"a lease that etcd ends early", "(belief/stale) (belief/overlap)", func(t *tale) {
		t.set(SettingEarly, "a, stop leader")
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "stop leader"}, func() {})
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		t.check(a)
	}},
	{"a presence key deleted by hand", "", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "meddle", Attr: map[string]string{"key": simPrefix + alive(a.req.lease)}}, func() {
			t.commit(change{key: alive(a.req.lease), del: true})
		})
		t.end(a, history.Lost)
		t.drop(a.req.lease, "revoked")
		t.open(t.clients[0])
	}},
	{"a permit that nobody was told of", "", func(t *tale) {
		a := t.asks(0, t.sem, 2)
		t.fails(a, "")
		a.state = "withdraw"
		t.advance(a)
	}},
	{"a late stamp proves nothing", "", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		e := t.event(a, history.KindReturn) // it had the permit, but its process stood still
		e.Outcome = history.OK
		t.emit(e)
		t.emit(t.event(a, history.KindGranted))
		t.end(a, history.Lost)
		t.forget(a)
	}},
	{"a try is refused for a reason", "", func(t *tale) {
		a := t.asks(0, t.sem, 2)
		t.grant(a)
		t.tryAt(t.clients[1], t.sem)
	}},
	{"a limit deleted by hand forgets who holds", "(store/through)", func(t *tale) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.askLimit(1, 0)
		t.nemesis(history.Event{Name: "meddle", Attr: map[string]string{"key": simPrefix + "sem/a/limit"}}, func() {
			t.commit(change{key: "sem/a/limit", del: true})
		})
		above := t.sem.above
		t.sem.above = 0
		t.setLimit(t.sem, 1, true, 0)
		t.statusOf(t.sem, -1)
		t.sem.above = above
	}},
	{"MaxHold gives a permit back, and word of it comes late", "", func(t *tale) {
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
	{"an eviction that the tap saw late", "(belief/overlap)", func(t *tale) {
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
	{"an eviction that the tap saw when a release was called already", "", func(t *tale) {
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
	{"a value that was put elsewhere", "", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.commit(change{key: "reg/y", value: "late"})
		t.emit(history.Event{Kind: history.KindEffect, Client: "c0", Gate: "mutex/m", Token: a.req.token, Outcome: history.Unknown,
			Attr: map[string]string{"register": simPrefix + "reg/x", "value": "late", "mode": history.ModeGuard}})
	}},
	{"a call that returns late, because all stood still", "", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.now += 3e9
		t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 2.5e9})
	}},
	{"a call of a process that is stopped", "", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		t.skipCalm = true
		a, b := t.asks(0, t.sem, 1), t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.nemesis(history.Event{Name: "stop process", Client: "c0"}, func() { t.now += 6e9 })
		t.drop(b.req.lease, "expired")
		t.open(t.clients[0])
	}},
	{"nobody says that all is calm", "", func(t *tale) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.fails(b, "")
		b.state = "withdraw"
		t.now += 10e9
		t.grant(a)
		c := t.asks(2, t.sem, 1)
		t.drop(c.req.lease, "expired")
		t.open(t.clients[2])
		t.now += 10e9
		t.skipCalm = true
	}},
	{"a status that takes long", "", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		t.skipCalm = true
		t.statusOf(t.sem, 0)
		back := t.last(history.KindReturn)
		t.now += 4e9
		back.At = t.now
	}},
	{"a try at a limit that cannot be read", "", func(t *tale) {
		t.nemesis(history.Event{Name: "meddle", Attr: map[string]string{"key": simPrefix + "sem/a/limit"}}, func() {
			t.commit(change{key: "sem/a/limit", value: `{"v":9,"limit":5}`})
		})
		t.sem.known = false
		t.tryAt(t.clients[0], t.sem)
		t.commit(change{key: "sem/a/limit", del: true})
		t.setLimit(t.sem, 2, true, 0)
	}},
	{"a key that a nemesis planted", "", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		t.skipCalm = true
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.nemesis(history.Event{Name: "plant", Attr: map[string]string{"key": simPrefix + "mutex/m/queue/light/0000000000000001-00aa"}}, func() {
			t.commit(change{key: "mutex/m/queue/light/0000000000000001-00aa", value: `{"v":1,"holder":"c0"}`, lease: 1})
		})
		t.now += 20e9
		t.commit(change{key: "mutex/m/queue/light/0000000000000001-00aa", del: true})
	}},
	{"a key that asks a mutex for more than there can be", "", func(t *tale) {
		key := "mutex/m/queue/heavy/2/0000000000000001-00aa"
		t.nemesis(history.Event{Name: "plant", Attr: map[string]string{"key": simPrefix + key}}, func() {
			t.commit(change{key: key, value: "planted", lease: 1})
		})
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.commit(change{key: key, del: true})
	}},
	{"a key that nobody wants, while all stood still", "", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		t.skipCalm = true
		a := t.asks(0, t.sem, 1)
		t.fails(a, "")
		a.state = "withdraw"
		t.now += 7e9
		t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 6e9})
	}},
	{"a call whose context had ended before", "", func(t *tale) {
		t.now += 3e9
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now - 2e9
	}},
	{"a raised limit need not remember", "", func(t *tale) {
		t.grant(t.asks(0, t.sem, 1))
		t.storeLimit(record.Limit{Limit: 2, Settled: true})
	}},
	{"a lowered limit that is not settled yet", "", func(t *tale) {
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
	{"a key that lost its lease and got it back", "(store/once)", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "meddle", Attr: map[string]string{"key": simPrefix + a.req.key}}, func() {
			t.putAgain(a.req.key, 0)
			t.statusOf(t.sem, -1)
			t.putAgain(a.req.key, a.req.lease)
			t.statusOf(t.sem, 0)
		})
		t.check(a)
	}},

	{"over the limit", "belief/overlap linear/order store/limit", func(t *tale) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.grant(c)
		t.gives(c)
	}},
	{"weight is not counted", "belief/overlap linear/order store/limit", func(t *tale) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 2)
		t.grant(a)
		t.grant(b)
		t.gives(b)
	}},
	{"before the limit was raised", "linear/order store/early", func(t *tale) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.askLimit(1, 0)
		t.grant(c)
		t.askLimit(3, 0)
	}},
	{"another overtakes", "store/order", func(t *tale) {
		a, b, c := t.asks(0, t.sem, 1), t.asks(1, t.sem, 2), t.asks(2, t.sem, 1)
		t.grant(a)
		t.grant(c)
		t.gives(c)
		t.forget(b)
		t.gives(a)
		t.remove(b.req, "withdrawn")
		t.fails(b, "")
	}},
	{"over the limit, and evicted later", "belief/overlap linear/order store/limit (belief/stale)", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.evictOne(b.req)
		t.gives(a)
	}},
	{"one of three was evicted", "belief/overlap linear/order store/limit (belief/stale) (belief/overlap)", func(t *tale) {
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
	{"two hold, until the first one's lease ends", "belief/overlap linear/order", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.check(a)
		t.expire(t.clients[0])
	}},
	{"told too early", "belief/overlap linear/order store/early", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.gives(a)
	}},
	{"another weight", "store/weight", func(t *tale) {
		a := t.asks(0, t.sem, 2)
		a.weight = 1
		t.grant(a)
	}},
	{"the token of another revision", "store/delete store/token", func(t *tale) {
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
	{"the token of another's request", "store/token", func(t *tale) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		a.req, b.req = b.req, a.req
		t.grant(a)
		t.grant(b)
	}},
	{"one token twice", "belief/overlap linear/order store/token", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		b := t.ask(t.clients[1], t.mutex, 1, false)
		b.req = a.req
		t.grant(b)
		t.check(a)
		t.forget(b)
	}},
	{"tokens fall", "belief/overlap belief/stale store/token", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		t.grant(a)
		t.check(b)
		t.end(a, history.Lost)
		t.forget(a)
	}},
	{"seen before it was asked for", "store/time", func(t *tale) {
		a := t.ask(t.clients[0], t.sem, 1, false)
		call := len(t.events) - 1
		t.advance(a)
		t.now += 1_000_000
		t.events[call].At = t.now
		t.grant(a)
	}},
	{"a key is written again", "store/once", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.putAgain(a.req.key, a.req.lease)
		t.grant(a)
	}},
	{"a key is written again without a lease", "belief/stale store/delete store/once", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.putAgain(a.req.key, 0)
		a.req.leave("disowned")
		t.check(a)
		t.check(a)
		t.commit(change{key: a.req.key, del: true}, change{key: "id/sem/a/" + a.id, del: true})
		t.giveBack(a)
	}},
	{"two requests in one batch", "linear/order store/once", func(t *tale) {
		a, b := t.ask(t.clients[0], t.sem, 1, false), t.ask(t.clients[1], t.sem, 1, false)
		var changes []change
		for i, c := range []*simCall{a, b} {
			c.req = &simReq{gate: t.sem, call: c, weight: 1, lease: c.client.lease, token: t.rev + 1}
			c.req.key = fmt.Sprintf("sem/a/queue/light/%016x-000%d", c.req.lease, i)
			t.sem.queue = append(t.sem.queue, c.req)
			changes = append(changes, change{key: c.req.key, lease: c.req.lease, value: record.Request{Note: history.Tag(c.client.name, c.op)}.Encode()})
		}
		t.commit(changes...)
		a.state, b.state = "queued", "queued"
		t.fails(a, "")
		t.fails(b, "")
		a.state, b.state = "withdraw", "withdraw"
	}},
	{"a key on another lease", "store/once", func(t *tale) {
		a := t.ask(t.clients[0], t.sem, 1, false)
		name := t.clients[0].lease
		a.req = &simReq{gate: t.sem, call: a, weight: 1, lease: t.clients[1].lease, token: t.rev + 1, key: fmt.Sprintf("sem/a/queue/light/%016x-0000", name)}
		t.sem.queue = append(t.sem.queue, a.req)
		t.commit(change{key: a.req.key, lease: a.req.lease})
		a.state = "queued"
		t.fails(a, "")
		a.state = "withdraw"
	}},
	{"a limit that remembers too much", "store/through", func(t *tale) {
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
	{"a limit that forgets who holds", "store/through", func(t *tale) {
		a, b := t.asks(0, t.sem, 1), t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.sem.limit, t.sem.above = 1, 0 // it is lowered, and does not say so
		t.askLimit(1, 0)
	}},
	{"a settled limit that forgets who holds", "store/through", func(t *tale) {
		t.grant(t.asks(0, t.sem, 1))
		t.grant(t.asks(1, t.sem, 1))
		t.storeLimit(record.Limit{Limit: 1, Previous: 2, Settled: true})
	}},
	{"a limit that knows the future admits nobody", "belief/overlap linear/order store/limit", func(t *tale) {
		a := t.asks(0, t.sem, 2)
		t.storeLimit(record.Limit{Limit: 3, Through: 10_000, Settled: true})
		b := t.asks(1, t.sem, 1)
		t.grant(a)
		t.grant(b)
		t.check(a)
		t.gives(b)
		t.storeLimit(record.Limit{Limit: 3, Through: a.req.token, Settled: true})
	}},
	{"status tells too few", "store/status", func(t *tale) {
		t.grant(t.asks(0, t.sem, 1))
		t.statusOf(t.sem, -1)
	}},
	{"status tells too few while the limit cannot be read", "store/status", func(t *tale) {
		t.grant(t.asks(0, t.sem, 1))
		t.nemesis(history.Event{Name: "meddle", Attr: map[string]string{"key": simPrefix + "sem/a/limit"}}, func() {
			t.commit(change{key: "sem/a/limit", value: `{"v":9,"limit":5}`})
		})
		t.statusOf(t.sem, -1)
		t.sem.known = false
		t.statusOf(t.sem, 1) // whoever may hold
	}},
	{"status tells too many", "store/status", func(t *tale) { t.statusOf(t.sem, 1) }},
	{"deleted under its holder", "belief/stale store/delete", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.remove(a.req, "?")
		t.check(a)
		t.check(a)
		t.giveBack(a)
	}},
	{"deleted under its holder, as its release was told", "store/delete", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.giveBack(a)
		t.remove(a.req, "?")
		t.returned(a, history.Fail)
		t.forget(a)
		t.now += 2e9 // its lease goes on
	}},
	{"a release that fails with its lease", "", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.giveBack(a)
		t.remove(a.req, "released")
		t.returned(a, history.Fail)
		t.forget(a)
		t.expire(t.clients[0])
	}},
	{"a release that etcd confirms after the session's deadline", "", func(t *tale) {
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
	{"a release that etcd confirms after the session was closed", "", func(t *tale) { t.closesWhileItReleases(0) }},
	{"a release that etcd confirms after another session was closed", "store/delete", func(t *tale) { t.closesWhileItReleases(1) }},
	{"a late release deletes the next request", "store/delete", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		b := t.asks(0, t.mutex, 1)
		t.remove(b.req, "late release")
		b.req = t.put(b)
		t.grant(b)
	}},
	{"evicted by nobody", "store/delete", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.evictOne(a.req)
		t.last(history.KindCall).ID = "somebody else"
	}},
	{"a request outlives its presence key", "store/delete", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.commit(change{key: alive(a.req.lease), del: true})
		t.grant(a)
	}},
	{"a presence key that was put again without its lease, and deleted", "", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		key := alive(a.req.lease)
		t.nemesis(history.Event{Name: "meddle", Attr: map[string]string{"key": simPrefix + key}}, func() { t.putAgain(key, 0) })
		t.now += 5e9
		t.commit(change{key: key, del: true})
		t.remove(a.req, "withdrawn")
		t.fails(a, "")
		t.forget(a)
		t.drop(a.req.lease, "revoked")
		t.open(t.clients[0])
	}},
	{"a release that deletes nothing", "store/left store/release", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.grant(a)
		t.giveBack(a)
		t.returned(a, history.OK)
		t.forget(a)
		t.clients[0].lease = 7 // what is left goes with no lease
	}},
	{"a release that is confirmed too early", "store/release", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.giveBack(a)
		t.returned(a, history.OK)
		t.advance(t.ask(t.clients[1], t.mutex, 1, false)) // the revision before is later than the answer
		t.remove(a.req, "released")
		t.forget(a)
	}},
	{"a request that nobody wants", "store/left", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.fails(a, "")
		t.forget(a)
	}},
	{"a session that does not end", "store/left", func(t *tale) { t.clients = t.clients[1:] }},
	{"held after the key had gone", "belief/stale", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.check(a)
		t.end(a, history.Lost)
	}},
	{"two hold after an expiry", "belief/overlap belief/stale", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(b)
		t.check(a)
		t.end(a, history.Lost)
		t.check(b)
	}},
	{"a nemesis that was not at work", "belief/stale", func(t *tale) {
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
	{"another lease was revoked", "belief/stale", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.nemesis(history.Event{Name: "revoke", Lease: a.req.lease + 1}, func() {})
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.check(a)
		t.end(a, history.Lost)
	}},
	{"held after its deadline", "belief/deadline", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		a.until = t.now
		t.now += 20_000_000
		t.check(a)
		t.gives(a)
	}},
	{"back from the dead", "belief/terminal", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.end(a, history.Lost)
		t.check(a)
	}},
	{"a guard that holds too long", "fence/guard", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.gives(a)
		e := *t.last(history.KindEffect)
		e.Rev = t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
	{"a guard that holds too long, and no answer", "fence/guard", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.gives(a)
		e := *t.last(history.KindEffect)
		e.Outcome, e.Rev, e.Attr = history.Unknown, 0, map[string]string{"register": simPrefix + "reg/x", "value": "late", "mode": history.ModeGuard}
		t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
	{"a guard on a key that was written again", "fence/guard store/once", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		e := *t.last(history.KindEffect)
		t.putAgain(a.req.key, a.req.lease)
		e.Rev = t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
	{"a write before admission", "fence/guard", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		b.ended = true
		t.byGuard(b)
		b.ended = false
		t.gives(a)
		t.grant(b)
	}},
	{"a write before the request", "fence/guard", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.last(history.KindEffect).Rev = a.req.token - 1
	}},
	{"a write by nobody's guard", "fence/guard", func(t *tale) {
		t.emit(history.Event{Kind: history.KindEffect, Client: "c0", Gate: "mutex/m", Token: 3, Rev: t.rev, Outcome: history.OK,
			Attr: map[string]string{"register": "r", "mode": history.ModeGuard}})
	}},
	{"a register that takes a smaller token", "fence/falls", func(t *tale) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.grant(b)
		t.byToken(b)
		t.written["token"] = 0
		a.ended = true
		t.byToken(a)
	}},
	{"a holder is refused by its token", "fence/refused", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.written["token"] = a.req.token + 1
		t.byToken(a)
		t.gives(a)
	}},
	{"a holder is refused by its guard", "fence/refused", func(t *tale) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		kv := t.keys[a.req.key]
		t.keys[a.req.key] = history.KV{}
		t.byGuard(a)
		t.keys[a.req.key] = kv
		t.check(a)
		t.gives(a)
	}},
	{"released well after expiry", "linear/order", func(t *tale) {
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
	{"a call that returns too late", "live/late", func(t *tale) {
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.now += 3e9
	}},
	{"a call that returns late, and other things stood still", "live/late", func(t *tale) {
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
	{"a call that returns late, and others were stopped", "live/late", func(t *tale) {
		t.nemesis(history.Event{Name: "stop process", Client: "c0"}, func() {})
		t.now += 2e9
		a := t.asks(0, t.sem, 1)
		t.callOf(a).Until = t.now
		t.nemesis(history.Event{Name: "stop process", Client: "c1"}, func() { t.now += 3e9 })
		t.grant(a)
		t.nemesis(history.Event{Name: "stop process", Client: "c0"}, func() {})
	}},
	{"a call whose context had ended before", "", func(t *tale) {
		t.now += 5e9
		t.asks(0, t.sem, 1)
		t.last(history.KindCall).Until = t.now - 5e9
	}},
	{"a call that returns late, for its process stood still", "", func(t *tale) { t.lateAfterStall("c0") }},
	{"a call that returns late, while another's process stood still", "live/late", func(t *tale) { t.lateAfterStall("c1") }},
	{"a call that never returns", "live/late", func(t *tale) {
		a := t.ask(t.clients[0], t.sem, 1, false)
		t.last(history.KindCall).Until = t.now
		t.forget(a)
		t.now += 3e9
	}},
	{"a refusal without a reason", "live/refused", func(t *tale) {
		t.sem.known = false
		t.tryAt(t.clients[0], t.sem)
		t.sem.known = true
	}},
	{"admitted and not told", "live/told", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		a := t.asks(0, t.sem, 1)
		t.now += 4e9
		t.grant(a)
		t.skipCalm = true
	}},
	{"waiting for nothing", "live/forgotten", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		a := t.asks(0, t.sem, 1)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.now += 4e9
		t.fails(a, history.Gone)
		t.forget(a)
		t.skipCalm = true
	}},
	{"a key that nobody wants any more", "live/left", func(t *tale) {
		t.settle()
		t.mark(history.MarkCalm)
		a := t.asks(0, t.sem, 1)
		t.fails(a, "")
		a.state = "withdraw"
		t.now += 7e9
		t.skipCalm = true
	}},
}

// told lists who finds a rule broken, and in brackets what is excused.
func told(r *Report) string {
	killers := r.Killers()
	for _, f := range r.Findings {
		if name := "(" + f.Checker + "/" + f.Rule + ")"; f.Level == Excused && !slices.Contains(killers, name) {
			killers = append(killers, name)
		}
	}
	return strings.Join(killers, " ")
}

// TestGolden: each checker finds what it is for, and nothing else does.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, g := range slices.Concat(golden, goldenJobs, goldenRequests) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			tale := newTale()
			g.tell(tale)
			tale.finish()
			h := tale.history()
			r := Judge(h, all...)
			if got := told(r); got != g.killers {
				t.Errorf("killers %q, want %q\n%s\n%s", got, g.killers, r, dump(h))
			}
			if want := map[bool]Verdict{true: Green, false: Red}[len(r.Killers()) == 0]; r.Verdict != want {
				t.Errorf("verdict %s, want %s", r.Verdict, want)
			}
		})
	}
}

// TestEveryRuleCanFail: each rule that a checker's comment lists is broken by one
// of the golden histories, or told by TestVerdicts.
func TestEveryRuleCanFail(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{"store/tap": true, "linear/search": true}
	for _, g := range slices.Concat(golden, goldenJobs, goldenRequests) {
		for killer := range strings.FieldsSeq(g.killers) {
			broken[killer] = true
		}
	}
	for _, name := range rules(t) {
		if !broken[name] {
			t.Errorf("no golden history breaks %s", name)
		}
	}
}

// rules returns the rules that the checkers' comments list, as "checker/rule".
func rules(t *testing.T) (names []string) {
	rule := regexp.MustCompile(`(?m)^//\t([a-z]+)  +[a-z]`)
	for _, c := range all {
		source, err := os.ReadFile(c.Name() + ".go")
		require.NoError(t, err)
		doc, _, _ := strings.Cut(string(source), "\nfunc ")
		found := rule.FindAllStringSubmatch(doc, -1)
		require.NotEmpty(t, found, "the comment of %s lists no rules", c.Name())
		for _, m := range found {
			names = append(names, c.Name()+"/"+m[1])
		}
	}
	return names
}
