package check

import (
	"cmp"
	"slices"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Live is C5: waiting ends and nothing is left over. Whatever depends on etcd being
// there is asked for only after the mark healthy, when all nemeses are over; a bound
// that had not passed when the history ends is not judged.
//
// Its rules:
//
//	late      a call returned long after its context had ended, or never
//	reported  a request was admitted, but its call did not return
//	forgotten a call waits although its request is gone
//	refused   a try was refused although nothing was in its way all the time
//	left      a key exists though its call has failed or its permit has ended
type Live struct{}

// Name implements Checker.
func (Live) Name() string { return "live" }

// check implements Checker.
func (Live) check(v *view) []Finding {
	h := v.h
	l := &live{view: v, reported: duration(h, SettingReported, 3e9)}
	l.left = duration(h, SettingLeft, 0)
	if l.left == 0 {
		l.left = l.ttl + 5e9
	}
	l.stalls, l.slows = counted(h, CountStall), counted(h, CountSlow)
	var f []Finding
	for i := range l.ops {
		f = append(f, l.late(&l.ops[i])...)
		f = append(f, l.refused(&l.ops[i])...)
	}
	f = append(f, l.forgotten()...)
	for _, name := range l.names() {
		for _, r := range l.gates[name].requests {
			f = append(f, l.reportedTo(r)...)
			f = append(f, l.leftBehind(r)...)
		}
	}
	return f
}

type live struct {
	*view
	reported, left int64
	stalls, slows  []*history.Event
}

// stalled returns how long a client's process was stopped between two times.
func (l *live) stalled(client string, from, to int64) (sum int64) {
	for _, e := range l.stalls {
		if (e.Client == "" || e.Client == client) && e.At >= from && e.At-e.N <= to {
			sum += e.N
		}
	}
	return sum
}

// waited returns how long between two times a client's process was stopped, or etcd was
// slow: what depends on both takes that much longer.
func (l *live) waited(client string, from, to int64) int64 {
	return l.stalled(client, from, to) + overlap(l.slows, from, to)
}

// late: a call returns when its context ends.
func (l *live) late(op *history.Op) []Finding {
	if op.Call.Until == 0 {
		return nil
	}
	end := max(op.Call.Until, op.Call.At) // it may have ended before
	bound := end + l.back
	if min(op.Ended(), l.end) <= bound || l.killed(op) {
		return nil
	}
	if bound += l.stalled(op.Call.Client, end, min(op.Ended(), l.end)); min(op.Ended(), l.end) <= bound {
		return nil
	}
	if op.Return == nil {
		return []Finding{bad("late", op.Call.Gate, end, "%s of %s (call %d) has not returned %s after its context ended", op.Call.Name, op.Call.Client, op.Call.Op, ms(l.end-end))}
	}
	return []Finding{bad("late", op.Call.Gate, end, "%s of %s (call %d) returned %s after its context ended", op.Call.Name, op.Call.Client, op.Call.Op, ms(op.Ended()-end))}
}

// killed reports whether a nemesis struck a call's client while it was open, or
// before: a process that is dead or stopped returns nothing.
func (l *live) killed(op *history.Op) bool {
	for _, n := range l.strikes {
		if n.Begin.Client == op.Call.Client && n.Begin.At <= op.Ended() && addTime(n.End, l.back) >= op.Call.At {
			return true
		}
	}
	return false
}

// reportedTo: the call of an admitted request returns.
func (l *live) reportedTo(r *request) []Finding {
	op := l.opOf[r]
	if op == nil || r.admitted == 0 || l.spanOf[r] != nil && l.spanOf[r].From < l.healthy || l.killed(op) {
		return nil
	}
	for _, s := range r.reportable() {
		since := max(l.seen(s.from), l.healthy)
		if since == never {
			continue
		}
		end := min(op.Ended(), r.goneAt, l.end)
		if r.next != nil { // it waits for the total
			end = min(end, r.next.putAt)
		}
		if s.to != never {
			end = min(end, l.seen(s.to))
		}
		if bound := since + l.reported; end > bound+l.waited(l.owner(r), since, end) {
			return []Finding{at(s.from, bad("reported", r.gate.name, since, "%s was admitted, and its call did not return for %s", l.name(r), ms(end-since)))}
		}
	}
	return nil
}

// forgotten: a call that waits has a request, or gets a new one soon.
func (l *live) forgotten() (f []Finding) {
	if l.healthy == never {
		return nil
	}
	for i := range l.ops {
		op := &l.ops[i]
		if op.Call.Name != history.Acquire || l.killed(op) {
			continue
		}
		since, waits := max(l.healthy, op.Call.At), false
		for _, r := range slices.Concat(l.madeBy[op], l.unclaimed(op)) {
			if waits = waits || r.gone == never; !waits {
				since = max(since, r.goneAt)
			}
		}
		until := min(op.Ended(), l.end)
		if !waits && until > since+l.reported+l.waited(op.Call.Client, since, until) {
			f = append(f, bad("forgotten", op.Call.Gate, since, "%s of %s (call %d) has had no request in etcd for %s", op.Call.Name, op.Call.Client, op.Call.Op, ms(until-since)))
		}
	}
	return f
}

// unclaimed returns the requests without a tag that are of a call's client and
// time.
func (l *live) unclaimed(op *history.Op) (rs []*request) {
	for _, r := range l.untagged[op.Call.Gate] {
		if l.owner(r) == op.Call.Client && r.goneAt >= op.Call.At {
			rs = append(rs, r)
		}
	}
	return rs
}

// refused: a try is refused because of other requests. Every request that was in the queue at
// a revision within the call's time counts, and so does every change of the limit.
func (l *live) refused(op *history.Op) []Finding {
	if op.Call.Name != history.Try || op.Return == nil || op.Return.Cause != history.Full {
		return nil
	}
	g := l.gates[op.Call.Gate]
	if g == nil || l.through == 0 {
		return nil
	}
	last := l.roomFor(op, g)
	if total := l.totalOf(g.name); total != nil && l.roomFor(op, total) == nil || last == nil {
		return nil
	}
	return []Finding{at(last.rev, bad("refused", g.name, op.Call.At, "%s (call %d) was refused weight %d, but %d of %d were asked for at most", op.Call.Client, op.Call.Op, max(op.Call.Weight, 1), last.all, last.limit))}
}

// roomFor returns the state before a try if the queue had room for it all the time.
func (l *live) roomFor(op *history.Op, g *gate) *state {
	weight := max(op.Call.Weight, 1)
	fits := func(s state) bool { return s.known && s.all+weight <= s.limit }
	last := state{limit: g.fixed, known: g.fixed > 0}
	first, _ := slices.BinarySearchFunc(g.states, op.Call.At, func(s state, at int64) int { return cmp.Compare(s.at, at) })
	if first > 0 {
		last = g.states[first-1] // certainly before
	}
	if !fits(last) {
		return nil
	}
	for _, s := range g.states[first:] {
		if l.notBefore(s.rev) > op.Return.At {
			break // certainly after
		}
		if !fits(s) {
			return nil
		}
	}
	return &last
}

// leftBehind: when its call has failed, or its permit has ended, a request goes.
func (l *live) leftBehind(r *request) []Finding {
	if l.healthy == never || l.tampered(r.key, r.token) != nil || l.struck(r) != nil {
		return nil
	}
	free := l.wantedUntil(r)
	if free == never {
		return nil
	}
	since := max(free, l.healthy, r.putAt)
	until := min(r.goneAt, l.end)
	if until <= since+l.left+l.waited(l.owner(r), since, until) {
		return nil
	}
	return []Finding{at(r.token, bad("left", r.gate.name, since, "%s: its key existed for %s after its last use", l.name(r), ms(until-since)))}
}

// wantedUntil returns when a request's call had failed, its permit had ended, or
// its client had nothing open any more; never if that is not known.
func (l *live) wantedUntil(r *request) int64 {
	if s := l.spanOf[r]; s != nil {
		if s.Ended == nil {
			return never
		}
		return s.Ended.At
	}
	if op := l.opOf[r]; op != nil {
		return op.Ended()
	}
	owner, last, known := l.owner(r), int64(0), false
	for i := range l.ops {
		op := &l.ops[i]
		if op.Call.Client != owner || op.Call.Gate != r.gate.name {
			continue
		}
		known = true
		end := op.Ended()
		if s := l.spanOp[history.Tag(op.Call.Client, op.Call.Op)]; s != nil && s.Ended == nil {
			end = never
		}
		last = max(last, end)
	}
	if !known {
		return never
	}
	return last
}
