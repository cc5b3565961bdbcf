package check

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Jobs is C7: scheduled jobs. It replays the tap once more, as the life of run
// records and locks (replay_job.go), and joins the starts of functions to it.
//
// Rules of what is in etcd:
//
//	claim     a lock was created without the record of its tick, was written again,
//	          or belongs to a session that had ended
//	again     a tick was claimed again, and not as the attempt after one that was lost, or that
//	          failed and may be tried again
//	later     a tick was claimed after a later one was, or after it was closed
//	paused    a tick was claimed while the job was paused
//	held      a tick was claimed before AtLeast had passed since the start before, or
//	          what keeps the job from that went too soon
//	finish    a finish touched another run than its own, a run was ended in etcd by
//	          others while its function ran, or a claim was taken back that was started
//	trim      a record went, and its tick is not closed; or closed ticks were opened
//	left      a lock exists while nothing runs, or anything on a lease after all
//	          sessions were closed
//
// Rules of what functions and callers observe:
//
//	twice     a function was started twice for one attempt at a tick, or by one claim
//	token     a function was started that has no claim, or one for something else
//	early     a function was started before its tick was claimed
//	retries   an attempt was started that Retries, or after a failure RetryFailed, does not allow
//	pause     an attempt after a failure was claimed before its pause had passed
//	apart     a tick was claimed nearer to one that was claimed before than Apart allows
//	late      a tick was started later than LateBy allows, by its process's own clock
//	reported  a call returned what was at no time so
//
// And of runs, which are judged as permits of a mutex are by belief and fence:
// overlap, stale, deadline and terminal, guard, falls and refused. The exceptions are
// the same. Unlock is one, as eviction is there.
//
//	overlap   two runs of a job believed in themselves at some instant
//	stale     a run believed in itself when its lock had gone
//	deadline  a run was reported as live after its own deadline
//	terminal  a run that had ended was reported as live again
//	guard     a write by the guard was accepted when the lock did not exist
//	falls     two writes were accepted, the later with the smaller token
//	refused   a write was refused although the lock existed all the time
type Jobs struct{}

// Name implements Checker.
func (Jobs) Name() string { return "jobs" }

// check implements Checker.
func (Jobs) check(v *view) []Finding {
	f := append(v.beliefs(v.runs), v.registers(isJob)...)
	if !v.tapped {
		return f
	}
	for _, name := range slices.Sorted(maps.Keys(v.jobs)) {
		for _, b := range v.jobs[name].breaches {
			finding := at(b.rev, bad(b.rule, name, b.at, "%s", b.text))
			if b.key != "" && v.tampered(b.key, b.rev) != nil {
				finding.Level = Excused
			}
			f = append(f, finding)
		}
		for _, c := range v.jobs[name].claims {
			f = append(f, v.ended(name, c)...)
			f = append(f, v.kept(name, c)...)
		}
	}
	f = append(f, v.starts()...)
	for i := range v.ops {
		f = append(f, v.skipped(&v.ops[i])...)
	}
	return append(f, v.leftOfJobs()...)
}

// starts joins the starts of functions to claims.
func (v *view) starts() (f []Finding) {
	claims := map[id]*claim{}
	for _, j := range v.jobs {
		for _, c := range j.claims {
			claims[id{j.name, c.token}] = c
		}
	}
	type attempt struct {
		job, tick string
		n         int64
	}
	tokens, attempts := map[id]*history.Span{}, map[attempt]*history.Span{}
	for i := range v.runs {
		s := &v.runs[i]
		g := s.Granted
		op := v.opByTag[history.Tag(g.Client, g.Op)]
		if op == nil {
			continue
		}
		k, n := id{g.Gate, g.Token}, attempt{g.Gate, tickOf(g.ID), op.Call.N}
		if o := attempts[n]; o != nil {
			f = append(f, bad("twice", g.Gate, s.From, "attempt %d at tick %s was started by %s and by %s", n.n, n.tick, holder(o), holder(s)))
		} else if o := tokens[k]; o != nil {
			f = append(f, bad("twice", g.Gate, s.From, "token %d was started by %s and by %s", k.token, holder(o), holder(s)))
		}
		tokens[k], attempts[n] = s, s
		switch c := claims[k]; {
		case c == nil:
			f = append(f, bad("token", g.Gate, s.From, "%s was started with token %d, which is no claim's", holder(s), k.token))
		case c.tick != n.tick || int64(c.attempt) != n.n || c.rec.Owner != g.Client:
			f = append(f, at(c.token, bad("token", g.Gate, s.From, "%s was started for attempt %d at tick %s with token %d, by which %s has claimed attempt %d at tick %s",
				holder(s), n.n, n.tick, k.token, c.rec.Owner, c.attempt, c.tick)))
		case v.notBefore(c.token) > s.From:
			f = append(f, at(c.token, bad("early", g.Gate, s.From, "%s was started %s before it can have been claimed", holder(s), ms(v.notBefore(c.token)-s.From))))
		case v.tooLate(c, op):
			f = append(f, at(c.token, bad("late", g.Gate, s.From, "%s has claimed tick %s at %s by its own clock, with LateBy of %s",
				holder(s), c.tick, stampOf(time.UnixMilli(c.rec.StartMS)), op.Call.Attr["lateby"])))
		default:
			f = append(f, v.repeated(c, s, op)...)
			f = append(f, v.apart(c, s, op)...)
		}
	}
	return f
}

// repeated checks an attempt after another one: how many there may be, and the pause, by how the one before has ended.
func (v *view) repeated(c *claim, s *history.Span, op *history.Op) []Finding {
	name, attr := s.Granted.Gate, op.Call.Attr
	option, most := "Retries", attr["retries"]
	after := c.before != nil && c.before.mayFollow()
	if after {
		option, most = "RetryFailed", attr["retryfailed"]
	}
	if (most != "" || after) && int64(c.attempt) > 1+number(most) {
		return []Finding{at(c.token, bad("retries", name, s.From, "%s was started as attempt %d, with %s of %s", holder(s), c.attempt, option, cmp.Or(most, "0")))}
	}
	pause, err := time.ParseDuration(attr["pause"])
	if err != nil || !after || c.before.claim == nil || c.before.claim.lock.gone == never {
		return nil
	}
	if passed := v.seen(c.token) - v.notBefore(c.before.claim.lock.gone); passed < int64(pause) {
		return []Finding{at(c.token, bad("pause", name, s.From, "%s was started as attempt %d %s after the failure before it, with a pause of %s", holder(s), c.attempt, ms(passed), pause))}
	}
	return nil
}

// apart checks that a first attempt at a tick is as far from the ticks before as its call wanted.
func (v *view) apart(c *claim, s *history.Span, op *history.Op) (f []Finding) {
	name := s.Granted.Gate
	from, ok := before(c.tick, op.Call.Attr["apart"])
	if !ok || c.attempt > 1 {
		return nil
	}
	for _, o := range v.jobs[name].claims {
		if o.attempt != 1 || o.token >= c.token || o.tick <= from || o.tick >= c.tick {
			continue
		}
		for _, l := range v.lives[name+"/run/"+o.tick] {
			if l.created == o.token && (l.gone == never || l.gone > c.token) {
				f = append(f, at(c.token, bad("apart", name, s.From, "%s has claimed tick %s, with Apart of %s, and %s has tick %s", holder(s), c.tick, op.Call.Attr["apart"], o.rec.Owner, o.tick)))
			}
		}
	}
	return f
}

// before returns the tick that is so much before another one.
func before(tick, apart string) (from string, ok bool) {
	d, err := time.ParseDuration(apart)
	t, bad := time.Parse(tickText, tick)
	return stampOf(t.Add(-d)), err == nil && bad == nil
}

// tooLate reports whether a claim was made too late for its tick. Its process may take a
// moment to notice that the time is over.
func (v *view) tooLate(c *claim, op *history.Op) bool {
	bound, err := time.ParseDuration(op.Call.Attr["lateby"])
	tick, bad := time.Parse(tickText, c.tick)
	slack := time.Duration(v.back)
	return err == nil && bad == nil && time.UnixMilli(c.rec.StartMS).Sub(tick) > bound+slack
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// ended asks why a lock went that went by itself: its function had returned, or ran
// too long. A claim that was taken back was not started.
func (v *view) ended(name string, c *claim) []Finding {
	s := v.spanOf[c.lock]
	if s == nil || c.lock.gone == never || v.struck(c.lock) != nil || v.tampered(c.lock.key, c.lock.gone) != nil {
		return nil
	}
	if c.undone {
		return []Finding{at(c.lock.gone, bad("finish", name, c.lock.goneAt, "attempt %d at tick %s was taken back, though %s had started it", c.attempt, c.tick, holder(s)))}
	}
	if c.lock.how == withNotice && !v.unlockCalled(name, c.token, c.lock.goneAt) {
		return []Finding{at(c.lock.gone, bad("finish", name, c.lock.goneAt, "attempt %d at tick %s was unlocked, and no call has requested that", c.attempt, c.tick))}
	}
	if c.lock.how != plain || v.released(c.lock) <= c.lock.goneAt {
		return nil
	}
	if e := s.Ended; e != nil && (e.At <= c.lock.goneAt || e.Until > 0 && e.Until <= addTime(c.lock.goneAt, slip)) {
		return nil // AtMost has passed
	}
	return []Finding{at(c.lock.gone, bad("finish", name, c.lock.goneAt, "attempt %d at tick %s was ended in etcd while its function ran (%s)", c.attempt, c.tick, holder(s)))}
}

// unlockCalled reports whether an operator has called to unlock a job between a start and
// a time.
func (v *view) unlockCalled(name string, token, until int64) bool {
	return slices.ContainsFunc(v.ops, func(op history.Op) bool {
		return op.Call.Name == history.JobUnlock && op.Call.Gate == name && op.Call.At <= until && op.Ended() >= v.notBefore(token)
	})
}

// kept checks whether AtLeast was kept: its key came with the claim, and did
// not go before.
func (v *view) kept(name string, c *claim) []Finding {
	s := v.spanOf[c.lock]
	if s == nil {
		return nil
	}
	op := v.opByTag[history.Tag(s.Granted.Client, s.Granted.Op)]
	d, err := time.ParseDuration(op.Call.Attr["atleast"])
	switch {
	case err != nil || d == 0:
	case c.hold == nil:
		return []Finding{at(c.token, bad("held", name, c.lock.putAt, "tick %s was claimed by %s, and nothing keeps the job from starting again", c.tick, holder(s)))}
	case c.hold.gone != never && v.seen(c.hold.gone)-v.notBefore(c.token) < int64(d):
		if v.tampered(v.prefix+c.hold.name, c.hold.gone) == nil && !v.unlockCalled(name, c.token, v.seen(c.hold.gone)) {
			return []Finding{at(c.hold.gone, bad("held", name, v.seen(c.hold.gone), "the job could start again %s after %s had started tick %s, with AtLeast of %s", ms(v.seen(c.hold.gone)-v.notBefore(c.token)), holder(s), c.tick, d))}
		}
	}
	return nil
}

// skipped checks the reason that a call of Do returned: what was in its way must have existed at
// some time of the call.
func (v *view) skipped(op *history.Op) []Finding {
	if op.Call.Name != history.JobDo || op.Return == nil || op.Return.Outcome != history.OK {
		return nil
	}
	name, tick := op.Call.Gate, tickOf(op.Return.Attr["tick"])
	why, ok := op.Return.Cause, true
	switch why {
	case "claimed elsewhere":
		ok = v.stoodFrom(name+"/run/"+tick, 0, op.Return.At) || v.nearClaimed(name, tick, op)
	case "paused":
		ok = v.stoodFrom(name+"/pause", op.Call.At, op.Return.At)
	case "still running":
		ok = v.stoodFrom(name+"/lock", op.Call.At, op.Return.At) || v.stoodFrom(name+"/cooldown", op.Call.At, op.Return.At)
	case "late":
		// An attempt after a failure is too late, too, if it could last until the next fire time.
		ok = op.Call.Attr["lateby"] != "" || op.Call.Attr["retryfailed"] != "" || v.laterClaimed(name, tick, op.Return.At)
	case "ran", "failed", "lost":
		s := v.spanOf[v.byToken[id{name, op.Return.Token}]]
		ok = s != nil && s.Granted.Client == op.Call.Client
	}
	if ok {
		return nil
	}
	return []Finding{bad("reported", name, op.Return.At, "%s (call %d) returned that tick %s is %s, which was at no time so", op.Call.Client, op.Call.Op, tick, why)}
}

// nearClaimed reports whether a tick that is less than Apart before that one may have been claimed.
func (v *view) nearClaimed(name, tick string, op *history.Op) bool {
	from, ok := before(tick, op.Call.Attr["apart"])
	j := v.jobs[name]
	return ok && j != nil && slices.ContainsFunc(j.claims, func(c *claim) bool {
		return c.tick > from && c.tick < tick && v.notBefore(c.token) <= op.Return.At
	})
}

// laterClaimed reports whether a tick after that one may have been claimed by then.
func (v *view) laterClaimed(name, tick string, by int64) bool {
	j := v.jobs[name]
	return j != nil && slices.ContainsFunc(j.claims, func(c *claim) bool { return c.tick > tick && v.notBefore(c.token) <= by })
}

// stoodFrom reports whether a key may have existed at any time between two.
func (v *view) stoodFrom(name string, from, to int64) bool {
	return slices.ContainsFunc(v.lives[name], func(l *liveKey) bool {
		return v.notBefore(l.created) <= to && (l.gone == never || v.seen(l.gone) >= from)
	})
}

// leftOfJobs finds the keys that exist when they should not.
func (v *view) leftOfJobs() (f []Finding) {
	for mark, kinds := range map[string][]keyKind{
		history.MarkIdle:    {keyJobLock},
		history.MarkDrained: {keyJobLock, keyJobCooldown, keyJobSettings, keyClock},
	} {
		for _, m := range v.h.Marks(mark) {
			rev, ok := v.tappedBefore(m.At)
			for _, k := range v.keysAt(rev) {
				if ok && slices.Contains(kinds, k.parsed.kind) {
					f = append(f, at(k.created, bad("left", k.parsed.gate, m.At, "%s: %q exists and belongs to no run", mark, k.name)))
				}
			}
		}
	}
	return f
}
