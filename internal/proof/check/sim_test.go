package check

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// sim is the reference model: a made-up etcd with clients that keep all the rules,
// written the slow, obvious way, that leaves a history as a real run would. What it
// does is decided by pick.
type sim struct {
	pick    func(n int) int // 0 ≤ pick(n) < n
	now     int64
	tapAt   int64
	rev     int64
	ops     int64
	events  []history.Event
	clients []*simClient
	gates   []*simGate
	base    *simBase
	bases   []*simBase
	apart   bool // requests at keys are written without those of the total
	calls   []*simCall
	keys    map[string]history.KV
	written map[string]int64 // registers: the greatest token, or what was written last
	tries   int64

	jobs    []*simJob
	running []*simRun // functions
	asked   []*simIdem
	trying  []*simTry // attempts whose calls have not returned

	skipHealthy bool // it was marked healthy before
}

const simPrefix = "/p/"

type simClient struct {
	name  string
	lease int64
	dead  bool
}

type simGate struct {
	name  string
	limit int64
	known bool
	queue []*simReq
	used  int64
	above int64
	owned bool     // a key of a limiter that has a limit of its own
	base  *simBase // the default of a key of a limiter, or nil
	total *simGate // of a key: that of the total, or nil
}

type simReq struct {
	gate     *simGate
	call     *simCall
	key, id  string
	token    int64
	weight   int64
	lease    int64
	admitted bool
	gone     string  // how it went, "" while it exists
	next     *simReq // of a key: the one in the queue of the total, or nil
}

// simCall is one call for a permit and the permit it leads to.
type simCall struct {
	client  *simClient
	gate    *simGate
	op      int64
	weight  int64
	id      string
	state   string // called, queued, withdraw, hold, release, late, done
	req     *simReq
	held    int64
	until   int64
	ended   bool
	release int64 // op
	shared  bool  // its key may serve other calls
	used    bool  // its guard was
}

// simulate runs a number of steps and then brings everything to its end.
func simulate(steps int, pick func(int) int) *history.History {
	s := &sim{pick: pick, now: 1_000_000, rev: 10, keys: map[string]history.KV{}, written: map[string]int64{}}
	s.begin()
	for range steps {
		s.now += int64(1+s.pick(50)) * 1000
		s.step()
	}
	s.finish()
	return s.history()
}

func (s *sim) history() *history.History {
	events := slices.Clone(s.events)
	for i := range events {
		events[i].Seq = int64(i) + 1
	}
	return history.Merge(&history.History{Events: events})
}

func (s *sim) begin() {
	for _, set := range [][2]string{{SettingTTL, "1s"}, {SettingLag, "1ms"}, {SettingRetain, simRetain.String()}} {
		s.emit(history.Event{Kind: history.KindSet, Name: set[0], Attr: map[string]string{"value": set[1]}})
	}
	s.emit(history.Event{Kind: history.KindMark, Name: history.MarkTap, Rev: s.rev, Attr: map[string]string{"prefix": simPrefix}})
	for _, name := range []string{"semaphore/a", "mutex/m"} {
		g := &simGate{name: name}
		s.gates = append(s.gates, g)
		if strings.HasPrefix(name, "mutex/") {
			g.limit, g.known = 1, true
			continue
		}
		s.setLimit(g, int64(1+s.pick(3)), true, 0)
	}
	s.beginKeyed()
	for i := range 3 {
		c := &simClient{name: fmt.Sprintf("c%d", i)}
		s.clients = append(s.clients, c)
		s.open(c)
	}
}

// emit records an event of a client's or of the run's.
func (s *sim) emit(e history.Event) history.Event {
	s.now += 1000
	e.At = s.now
	s.events = append(s.events, e)
	return e
}

type change struct {
	key, value string
	lease      int64
	del        bool
}

// commit makes one revision, which the tap sees a little later.
func (s *sim) commit(changes ...change) int64 {
	s.now += 1000
	s.rev++
	s.tapAt = max(s.tapAt+1, s.now+int64(s.pick(40))*1000)
	for _, c := range changes {
		kv, stood := s.keys[c.key]
		e := history.Event{At: s.tapAt, Kind: history.KindPut, Rev: s.rev}
		switch {
		case c.del && !stood:
			continue
		case c.del:
			e.Kind, e.KV = history.KindDelete, &kv
			delete(s.keys, c.key)
		default:
			if !stood {
				kv = history.KV{Key: history.Bytes(simPrefix + c.key), Create: s.rev}
			}
			kv.Value, kv.Lease = history.Bytes(c.value), c.lease
			kv.Version++
			s.keys[c.key] = kv
			e.KV = &kv
		}
		s.events = append(s.events, e)
	}
	for _, g := range s.gates {
		s.admit(g)
	}
	return s.rev
}

// admit is the rule of admission in its slowest form.
func (s *sim) admit(g *simGate) {
	slices.SortFunc(g.queue, func(a, b *simReq) int { return cmp.Compare(a.token, b.token) })
	used := int64(0)
	for _, r := range g.queue {
		if !r.admitted && !(g.known && used+r.weight <= g.limit) {
			break
		}
		r.admitted = true
		used += r.weight
		g.above = max(g.above, r.token)
	}
	g.used = used
}

func (s *sim) all(g *simGate) (n int64) {
	for _, r := range g.queue {
		n += r.weight
	}
	return n
}

// gone takes requests out of their queues; the caller has committed the deletes.
func (r *simReq) leave(how string) {
	r.gone = how
	r.gate.queue = slices.DeleteFunc(r.gate.queue, func(o *simReq) bool { return o == r })
}

func alive(lease int64) string { return fmt.Sprintf("session/%016x/alive", lease) }

func (s *sim) open(c *simClient) {
	s.ops++
	s.emit(history.Event{Kind: history.KindCall, Client: c.name, Op: s.ops, Name: history.Open})
	c.lease = 1000 + s.ops
	value := record.Session{Owner: c.name}.Encode()
	s.commit(change{key: alive(c.lease), value: value, lease: c.lease})
	s.emit(history.Event{Kind: history.KindReturn, Client: c.name, Op: s.ops, Name: history.Open, Lease: c.lease, Outcome: history.OK})
}

// setLimit stores a limit as the product does: in two steps if it is lowered.
func (s *sim) setLimit(g *simGate, n int64, first bool, by int) {
	r := record.Limit{Limit: n, Through: g.above, By: fmt.Sprintf("c%d", by), Settled: first || n >= g.limit}
	lowers := !r.Settled
	if lowers {
		r.Previous = g.limit
	}
	g.limit, g.known = n, true
	s.commit(change{key: g.name + "/limit", value: r.Encode()})
	if lowers && s.pick(5) > 0 {
		r.Settled = true
		s.commit(change{key: g.name + "/limit", value: r.Encode()})
	}
}

func (s *sim) step() {
	switch s.pick(60) {
	case 40, 41, 42, 43, 44, 45, 46, 47:
		s.jobStep()
	case 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59:
		s.requestStep()
	case 0, 1, 2, 3, 10, 11:
		s.call()
	case 4:
		s.expire(s.clients[s.pick(len(s.clients))])
	case 5:
		s.strike()
	case 6:
		s.evict()
	case 7:
		if s.pick(2) == 0 {
			s.keyedStep()
			break
		}
		s.changeLimit()
	case 8:
		s.status()
	case 9:
		s.try()
	default:
		if open := s.open_(); len(open) > 0 {
			s.advance(open[s.pick(len(open))])
		}
	}
}

func (s *sim) open_() (open []*simCall) {
	for _, c := range s.calls {
		if c.state != "done" {
			open = append(open, c)
		}
	}
	return open
}

func (s *sim) call() {
	if len(s.open_()) > 8 {
		return
	}
	open := s.permitted()
	g, weight := open[s.pick(len(open))], int64(1)
	if g.limit > 1 && s.pick(3) == 0 {
		weight = 2
	}
	client := s.clients[s.pick(len(s.clients))]
	if g == s.gates[0] && weight == 1 && s.pick(2) == 0 {
		s.askShared(client, g)
		return
	}
	s.ask(client, g, weight, s.pick(3) == 0)
}

// ask begins a call for a permit.
func (s *sim) ask(client *simClient, g *simGate, weight int64, withID bool) *simCall {
	c := &simCall{client: client, gate: g, weight: weight, state: "called"}
	s.ops++
	c.op = s.ops
	if withID {
		c.id = fmt.Sprintf("id%d", c.op)
	}
	s.emit(history.Event{Kind: history.KindCall, Client: client.name, Op: c.op, Name: history.Acquire, Gate: g.name, Weight: c.weight, ID: c.id})
	s.calls = append(s.calls, c)
	return c
}

func (s *sim) put(c *simCall) *simReq {
	r := &simReq{gate: c.gate, call: c, id: c.id, weight: c.weight, lease: c.client.lease}
	part := "light/"
	if c.weight > 1 {
		part = fmt.Sprintf("heavy/%d/", c.weight)
	}
	for n := 0; ; n++ {
		slot := fmt.Sprintf("%016x-%04x", r.lease, n)
		r.key = c.gate.name + "/queue/" + part + slot
		if _, taken := s.keys[r.key]; !taken && !s.numbered(c.gate, slot) {
			break
		}
	}
	r.token = s.rev + 1
	both := c.gate.total != nil && !s.apart && c.gate.known && s.all(c.gate)+r.weight <= c.gate.limit && s.pick(2) > 0
	c.gate.queue = append(c.gate.queue, r)
	rec := record.Request{Nonce: "n", Owner: c.client.name, ID: c.id, Note: history.Tag(c.client.name, c.op)}
	if c.shared {
		rec.Note = ""
	}
	changes := []change{{key: r.key, lease: r.lease, value: rec.Encode()}}
	if c.id != "" {
		changes = append(changes, change{key: "request-id/" + c.gate.name + "/" + c.id, lease: r.lease, value: "{}"})
	}
	if both {
		changes = append(changes, s.nextOf(r))
	}
	s.commit(changes...)
	return r
}

// remove deletes a request's keys.
func (s *sim) remove(r *simReq, how string, more ...change) {
	r.leave(how)
	changes := append([]change{{key: r.key, del: true}}, more...)
	if r.next != nil && r.next.gone == "" {
		r.next.leave(how)
		changes = append(changes, change{key: r.next.key, del: true})
	}
	if r.id != "" {
		changes = append(changes, change{key: "request-id/" + r.gate.name + "/" + r.id, del: true})
	}
	s.commit(changes...)
}

func (s *sim) event(c *simCall, kind history.Kind) history.Event {
	e := history.Event{Kind: kind, Client: c.client.name, Op: c.op, Name: history.Acquire, Gate: c.gate.name, Weight: c.weight, ID: c.id}
	if c.req != nil {
		e.Token = c.token()
	}
	return e
}

func (s *sim) fails(c *simCall, cause string) {
	e := s.event(c, history.KindReturn)
	e.Token, e.Outcome, e.Cause = 0, history.Fail, cause
	s.emit(e)
}

// grant returns a permit to a caller, and confirms that at once.
func (s *sim) grant(c *simCall) {
	s.grantUnseen(c)
	s.check(c)
}

// grantUnseen is grant to a holder that does not look at the permit yet.
func (s *sim) grantUnseen(c *simCall) {
	e := s.event(c, history.KindReturn)
	e.Outcome = history.OK
	at := s.emit(e).At
	e = s.event(c, history.KindGranted)
	e.At = at
	s.events = append(s.events, e)
	c.state = "hold"
}

func (s *sim) check(c *simCall) {
	e := s.event(c, history.KindHeld)
	e.Until = c.until
	c.held = s.emit(e).At
}

func (s *sim) end(c *simCall, cause string) {
	if c.ended {
		return
	}
	c.ended = true
	e := s.event(c, history.KindEnded)
	e.Cause, e.Held, e.Until = cause, c.held, c.until
	s.emit(e)
}

// advance takes a call one step further.
func (s *sim) advance(c *simCall) {
	switch c.state {
	case "called":
		if s.pick(8) == 0 {
			s.fails(c, "")
			c.state = "done"
			return
		}
		c.req, c.state = s.put(c), "queued"
	case "queued":
		s.waits(c)
	case "withdraw":
		if c.req.gone == "" {
			s.remove(c.req, "withdrawn")
		}
		s.sweep(c)
		c.state = "done"
	case "hold":
		s.holds(c)
	case "release", "late":
		if c.req.gone == "" {
			if s.pick(4) == 0 && c.state == "release" { // the answer is lost, or comes too late
				s.returned(c, history.Unknown)
				c.state = "late"
				return
			}
			s.remove(c.req, "released")
			if c.state == "release" {
				s.returned(c, history.OK)
			}
		} else if s.sweep(c); c.state == "release" {
			s.returned(c, history.Fail)
		}
		c.state = "done"
	}
}

func (s *sim) returned(c *simCall, o history.Outcome) {
	s.emit(history.Event{Kind: history.KindReturn, Client: c.client.name, Op: c.release, Name: history.Release, Gate: c.gate.name, Token: c.token(), Outcome: o})
}

func (s *sim) waits(c *simCall) {
	s.sweep(c)
	if s.joins(c) {
		return
	}
	switch {
	case c.req.gone != "" && c.req.gone != "evicted" && s.pick(2) == 0 && !c.client.dead:
		c.req = s.put(c) // it queues anew
	case c.req.gone != "":
		s.fails(c, history.Gone)
		c.state = "done"
	case c.ready() && s.pick(4) > 0 && c.req.lease == c.client.lease:
		s.grant(c)
	case s.pick(5) == 0:
		s.fails(c, "")
		c.state = "withdraw"
	}
}

func (s *sim) holds(c *simCall) {
	lost := c.ended
	switch s.pick(5) {
	case 0, 1:
		if !lost {
			s.check(c)
		}
	case 2:
		s.effect(c)
	case 3: // MaxHold: word of it may come before or after the key has gone
		if lost || c.req.gone != "" {
			break
		}
		s.check(c)
		c.until = s.now + 500
		early := s.pick(2) == 0
		s.now = c.until
		if early {
			s.end(c, history.HeldTooLong)
		}
		s.remove(c.req, "held too long")
		s.end(c, history.HeldTooLong)
		c.state = "done"
	case 4:
		if s.passesOn(c) && s.pick(3) > 0 {
			s.passOn(c)
			return
		}
		s.giveBack(c)
	}
}

func (s *sim) giveBack(c *simCall) {
	if !c.ended {
		s.check(c)
		s.end(c, history.Released)
	}
	s.ops++
	c.release = s.ops
	e := history.Event{Kind: history.KindCall, Client: c.client.name, Op: c.release, Name: history.Release, Gate: c.gate.name}
	if !c.shared {
		e.Token = c.token()
	}
	s.emit(e)
	c.state = "release"
}

// effect writes to a register by guard, or by token where that is right.
func (s *sim) effect(c *simCall) {
	if !c.ended {
		s.check(c)
	}
	c.used = true
	if c.gate.name == "mutex/m" && s.pick(2) == 0 {
		s.byToken(c)
		return
	}
	s.byGuard(c)
}

func (s *sim) byToken(c *simCall) {
	e := s.event(c, history.KindEffect)
	e.Attr = map[string]string{"register": "token", "mode": history.ModeToken}
	s.tries++
	e.N, e.Outcome = s.tries, history.OK
	if e.Token < s.written["token"] {
		e.Outcome = history.Fail
	}
	s.written["token"] = max(s.written["token"], e.Token)
	s.emit(e)
}

func (s *sim) byGuard(c *simCall) {
	e := s.event(c, history.KindEffect)
	e.Attr = map[string]string{"register": simPrefix + "reg/" + c.gate.name, "mode": history.ModeGuard}
	last := cmp.Or(c.req.next, c.req)
	kv, exists := s.keys[last.key]
	if !exists || kv.Create != last.token || kv.Version > 1 {
		e.Outcome = history.Fail
	} else {
		s.tries++
		e.Attr["value"] = fmt.Sprint("w", s.tries)
		e.Outcome, e.Rev = history.OK, s.commit(change{key: "reg/" + c.gate.name, value: e.Attr["value"]})
		if s.pick(4) == 0 {
			e.Outcome, e.Rev = history.Unknown, 0
		}
	}
	s.emit(e)
}

// drop deletes all keys of a lease.
func (s *sim) drop(lease int64, how string) {
	var changes []change
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k, kv := range s.keys {
			if kv.Lease == lease && !yield(k) {
				return
			}
		}
	}) {
		changes = append(changes, change{key: key, del: true})
	}
	for _, g := range s.gates {
		for _, r := range slices.Clone(g.queue) {
			if r.lease == lease {
				r.leave(how)
			}
		}
	}
	s.commit(changes...)
}

func (s *sim) holding(lease int64) (calls []*simCall) {
	for _, c := range s.calls {
		if c.state == "hold" && c.req.lease == lease {
			calls = append(calls, c)
		}
	}
	return calls
}

// expire is the end of a lease that could not be renewed: its holders know before.
func (s *sim) expire(c *simClient) {
	for _, call := range s.holding(c.lease) {
		s.end(call, history.Lost)
	}
	s.loseRuns(c.lease, true)
	s.loseTries(c.lease, true)
	s.drop(c.lease, "expired")
	s.open(c)
}

// strike is a nemesis at etcd's state: its holders learn of it later.
func (s *sim) strike() {
	var victims []*simReq
	for _, g := range s.gates {
		victims = append(victims, g.queue...)
	}
	kind := s.pick(3)
	if kind == 0 || len(victims) == 0 {
		c := s.clients[s.pick(len(s.clients))]
		s.nemesis(history.Event{Name: "revoke", Lease: c.lease}, func() {
			s.loseRuns(c.lease, false)
			s.loseTries(c.lease, false)
			s.drop(c.lease, "revoked")
		})
		s.open(c)
		return
	}
	r := victims[s.pick(len(victims))]
	s.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + r.key}}, func() {
		if kind == 1 {
			r.leave("deleted by hand")
		} else {
			r.leave("overwritten")
			s.commit(change{key: r.key, value: "hands off"})
		}
		s.commit(change{key: r.key, del: true})
	})
}

func (s *sim) nemesis(e history.Event, work func()) {
	s.ops++
	e.Kind, e.Op = history.KindBegin, s.ops
	e = s.emit(e)
	work()
	e.Kind = history.KindFinish
	s.emit(e)
}

// evict removes a request by its ID.
func (s *sim) evict() {
	var victims []*simReq
	for _, g := range s.gates {
		for _, r := range g.queue {
			if r.id != "" {
				victims = append(victims, r)
			}
		}
	}
	if len(victims) == 0 {
		return
	}
	s.evictOne(victims[s.pick(len(victims))])
}

func (s *sim) evictOne(r *simReq) {
	s.ops++
	op := s.ops
	s.emit(history.Event{Kind: history.KindCall, Client: "admin", Op: op, Name: history.Evict, Gate: r.gate.name, ID: r.id})
	notice := fmt.Sprintf("session/%016x/notice/%016x/%s", r.lease, r.token, url.PathEscape(r.key))
	s.remove(r, "evicted", change{key: notice, lease: r.lease, value: record.Notice{Cause: record.CauseEvicted}.Encode()})
	s.emit(history.Event{Kind: history.KindReturn, Client: "admin", Op: op, Name: history.Evict, Gate: r.gate.name, ID: r.id, Outcome: history.OK})
	s.commit(change{key: notice, del: true})
}

func (s *sim) changeLimit() {
	by := s.pick(len(s.clients))
	s.askLimit(int64(s.pick(4)), by)
}

func (s *sim) askLimit(n int64, by int) {
	g := s.gates[0]
	s.asking(history.Event{Name: history.SetLimit, Gate: g.name, Limit: n}, by, func() { s.setLimit(g, n, false, by) })
}

func (s *sim) status() { s.statusOf(s.gates[s.pick(len(s.gates))], 0) }

// statusOf asks for the weight of the holders, and gets an answer that is wrong by that much.
func (s *sim) statusOf(g *simGate, wrong int64) {
	s.ops++
	e := history.Event{Kind: history.KindCall, Client: "admin", Op: s.ops, Name: history.Status, Gate: g.name}
	s.emit(e)
	e.Kind, e.Outcome, e.Rev, e.N = history.KindReturn, history.OK, s.rev, g.used+wrong
	s.emit(e)
}

// try asks without waiting.
func (s *sim) try() {
	open := s.permitted()
	s.tryAt(s.clients[s.pick(len(s.clients))], open[s.pick(len(open))])
}

func (s *sim) tryAt(client *simClient, g *simGate) {
	c := &simCall{client: client, gate: g, weight: 1}
	s.ops++
	c.op = s.ops
	e := s.event(c, history.KindCall)
	e.Name = history.Try
	s.emit(e)
	if g.known && s.all(g)+1 <= g.limit && (g.total == nil || s.all(g.total)+1 <= g.total.limit) {
		c.req = s.put(c)
		s.joins(c)
		s.calls = append(s.calls, c)
		s.grant(c)
		return
	}
	e.Kind, e.Outcome, e.Cause = history.KindReturn, history.Fail, history.Full
	s.emit(e)
}

// finish lets everybody come to an end, as a harness does.
func (s *sim) finish() {
	s.settle()
	if !s.skipHealthy {
		s.mark(history.MarkHealthy)
	}
	if !s.gates[0].known || s.gates[0].limit < 3 {
		s.askLimit(3, 0)
	}
	s.finishKeyed()
	for len(s.open_()) > 0 {
		for _, c := range s.open_() {
			s.now += 1000
			if c.state == "hold" {
				s.giveBack(c)
			}
			s.advance(c)
		}
	}
	s.finishJobs()
	s.finishRequests()
	s.settle()
	s.mark(history.MarkIdle)
	for _, c := range s.clients {
		c.dead = true
		s.ops++
		e := history.Event{Kind: history.KindCall, Client: c.name, Op: s.ops, Name: history.Close, Lease: c.lease}
		s.emit(e)
		s.drop(c.lease, "closed")
		e.Kind, e.Outcome = history.KindReturn, history.OK
		s.emit(e)
	}
	s.settle()
	s.mark(history.MarkDrained)
}

// settle completes the tap.
func (s *sim) settle() {
	s.commit(change{key: history.TapMarker + "end"})
	s.commit(change{key: history.TapMarker + "end", del: true})
	s.now = max(s.now, s.tapAt)
	s.emit(history.Event{Kind: history.KindMark, Name: history.MarkTapComplete, Rev: s.rev})
}

func (s *sim) mark(name string) { s.emit(history.Event{Kind: history.KindMark, Name: name}) }
