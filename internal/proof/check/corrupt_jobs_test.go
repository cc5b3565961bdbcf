package check

import (
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// started are the claims whose functions were started.
func (s *scene) started(fits func(c *claim, sp *history.Span) bool) (c *claim, sp *history.Span, ok bool) {
	var all []*claim
	for _, name := range []string{"job/a", "job/b"} {
		if j := s.jobs[name]; j != nil {
			all = append(all, j.claims...)
		}
	}
	c, ok = one(s, all, func(c *claim) bool { return s.spanOf[c.lock] != nil && fits(c, s.spanOf[c.lock]) })
	if !ok {
		return nil, nil, false
	}
	return c, s.spanOf[c.lock], true
}

// afterLoss reports whether a claim is the attempt after one that was lost.
func afterLoss(c *claim, sp *history.Span) bool { return c.attempt > 1 && !afterFailure(c, sp) }

// afterFailure reports whether a claim is the attempt after one that failed.
func afterFailure(c *claim, _ *history.Span) bool { return c.before != nil && c.before.mayFollow() }

func everyone(*claim, *history.Span) bool { return true }

// finished reports whether a run ended by itself.
func (s *scene) finished(c *claim, _ *history.Span) bool {
	return c.lock.how == plain && c.lock.gone != never && !s.named(c.lock.key)
}

// tappedKey finds the event of a key whose name ends so, at a revision.
func tappedKey(rev int64, kind history.Kind, suffix string) func(e *history.Event) bool {
	return func(e *history.Event) bool {
		return e.Rev == rev && e.Kind == kind && e.KV != nil && strings.HasSuffix(string(e.KV.Key), suffix)
	}
}

// corruptionsOfJobs spoil what a history records of jobs.
var corruptionsOfJobs = []corruption{
	{"start a claim twice", []string{"jobs/twice"}, func(s *scene) bool {
		_, sp, ok := s.started(everyone)
		if !ok {
			return false
		}
		var more []history.Event
		s.edit(of(sp.Granted), func(e *history.Event) {
			again := *e
			again.Op += 100_000
			more = append(more, again)
		})
		s.events = append(s.events, more...)
		return true
	}},
	{"start with another token", []string{"jobs/token"}, func(s *scene) bool {
		_, sp, ok := s.started(everyone)
		if ok {
			s.edit(of(sp.Granted), func(e *history.Event) { e.Token += 1_000_000 })
		}
		return ok
	}},
	{"start another attempt", []string{"jobs/token"}, func(s *scene) bool {
		_, sp, ok := s.started(everyone)
		if ok {
			s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.N += 5 })
		}
		return ok
	}},
	{"allow no other attempt", []string{"jobs/retries"}, func(s *scene) bool {
		_, sp, ok := s.started(afterLoss)
		if ok {
			s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.Attr["retries"] = "0" })
		}
		return ok
	}},
	{"change the record that a second attempt found", []string{"jobs/again"}, func(s *scene) bool {
		c, _, ok := s.started(afterLoss)
		if !ok {
			return false
		}
		return s.edit(tappedKey(c.before.claim.token, history.KindPut, "/run/"+c.tick), func(e *history.Event) {
			kv := *e.KV
			kv.Value = history.Bytes(strings.Replace(string(kv.Value), `"attempt":1`, `"attempt":3`, 1))
			e.KV = &kv
		}) > 0
	}},
	{"allow no attempt after a failure", []string{"jobs/retries"}, func(s *scene) bool {
		_, sp, ok := s.started(afterFailure)
		if ok {
			s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.Attr["retryfailed"] = "0" })
		}
		return ok
	}},
	{"make the pause after a failure longer", []string{"jobs/pause"}, func(s *scene) bool {
		_, sp, ok := s.started(afterFailure)
		if ok {
			s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.Attr["pause"] = "1h" })
		}
		return ok
	}},
	{"make a failure final", []string{"jobs/again"}, func(s *scene) bool {
		c, _, ok := s.started(afterFailure)
		return ok && s.edit(tappedKey(c.before.claim.lock.gone, history.KindPut, "/run/"+c.tick), func(e *history.Event) {
			kv := *e.KV
			kv.Value = history.Bytes(strings.Replace(string(kv.Value), `"state":"failed"`, `"state":"failed","final":true`, 1))
			e.KV = &kv
		}) > 0
	}},
	{"move ticks apart", []string{"jobs/apart"}, func(s *scene) bool {
		_, sp, ok := s.started(func(c *claim, sp *history.Span) bool {
			return c.attempt == 1 && slices.ContainsFunc(s.jobs[sp.Granted.Gate].claims, func(o *claim) bool {
				r := s.lives[sp.Granted.Gate+"/run/"+o.tick]
				return o.tick < c.tick && o.attempt == 1 && o.token < c.token && len(r) == 1 && (r[0].gone == never || r[0].gone > c.token)
			})
		})
		if ok {
			s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.Attr["apart"] = "24h" })
		}
		return ok
	}},
	{"move a tick behind the next ones", []string{"jobs/later"}, func(s *scene) bool {
		c, sp, ok := s.started(func(c *claim, sp *history.Span) bool {
			j := s.jobs[sp.Granted.Gate]
			at, _ := slices.BinarySearch(j.ticks, c.tick)
			return c.attempt == 1 && s.finished(c, sp) && at < len(j.ticks)-1 && slices.Contains(j.ticks, c.tick)
		})
		if !ok {
			return false
		}
		to := stampOf(midnight.Add(50_000_000_000)) // within the horizon
		inLock := func(tick string) string { return strings.Replace(tick, ".000Z", "Z", 1) }
		s.edit(func(e *history.Event) bool {
			return e.KV != nil && e.Rev >= c.token && strings.Contains(string(e.KV.Key), sp.Granted.Gate+"/")
		}, func(e *history.Event) {
			kv := *e.KV
			kv.Key = history.Bytes(strings.Replace(string(kv.Key), "/run/"+c.tick, "/run/"+to, 1))
			kv.Value = history.Bytes(strings.Replace(string(kv.Value), inLock(c.tick), inLock(to), 1))
			e.KV = &kv
		})
		return true
	}},
	{"lose the record of a claim", []string{"jobs/claim"}, func(s *scene) bool {
		c, _, ok := s.started(everyone)
		return ok && s.drop(tappedKey(c.token, history.KindPut, "/run/"+c.tick)) > 0
	}},
	{"end a run while its function continues", []string{"jobs/finish"}, func(s *scene) bool {
		c, sp, ok := s.started(s.finished)
		if !ok {
			return false
		}
		s.drop(func(e *history.Event) bool { return e.Name == history.Release && e.Token == c.token })
		s.drop(func(e *history.Event) bool { return e.Kind == history.KindEnded && of(sp.Granted)(e) })
		return true
	}},
	{"lose the record of an end", []string{"jobs/finish"}, func(s *scene) bool {
		c, _, ok := s.started(func(c *claim, sp *history.Span) bool { return s.finished(c, sp) && !c.undone })
		return ok && s.drop(tappedKey(c.lock.gone, history.KindPut, "/run/"+c.tick)) > 0
	}},
	{"write the end of another", []string{"jobs/finish"}, func(s *scene) bool {
		c, _, ok := s.started(s.finished)
		if !ok {
			return false
		}
		return s.edit(tappedKey(c.lock.gone, history.KindPut, "/run/"+c.tick), func(e *history.Event) {
			kv := *e.KV
			kv.Value = history.Bytes(strings.Replace(string(kv.Value), `"attempt":`, `"attempt":7`, 1))
			e.KV = &kv
		}) > 0
	}},
	{"drop the calls to unlock", []string{"jobs/finish"}, func(s *scene) bool {
		_, _, ok := s.started(func(c *claim, _ *history.Span) bool { return c.lock.how == withNotice && s.struck(c.lock) == nil })
		return ok && s.drop(func(e *history.Event) bool { return e.Name == history.JobUnlock }) > 0
	}},
	{"trim without a floor", []string{"jobs/trim"}, func(s *scene) bool {
		return s.drop(func(e *history.Event) bool {
			return e.Kind == history.KindPut && e.KV != nil && strings.Contains(string(e.KV.Key), "/floor/")
		}) > 0
	}},
	{"leave a lock behind", []string{"jobs/left"}, func(s *scene) bool {
		c, _, ok := s.started(func(c *claim, sp *history.Span) bool {
			j := s.jobs[sp.Granted.Gate]
			return s.finished(c, sp) && c == j.claims[len(j.claims)-1] && s.leases[c.lock.lease].goneAt > s.h.Marks(history.MarkIdle)[0].At
		})
		return ok && s.drop(tappedKey(c.lock.gone, history.KindDelete, "/lock")) > 0
	}},
	{"believe in a run for longer", []string{"jobs/stale"}, func(s *scene) bool {
		c, sp, ok := s.started(func(c *claim, sp *history.Span) bool {
			return c.lock.goneAt != never && s.excuse(c.lock) == "" && sp.Ended != nil
		})
		if !ok {
			return false
		}
		s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindEnded }, func(e *history.Event) {
			e.Held, e.At, e.Until = c.lock.goneAt+1, max(e.At, c.lock.goneAt+2), 0
		})
		return true
	}},
	{"believe in a run while the next one continues", []string{"jobs/overlap"}, func(s *scene) bool {
		next := map[*claim]*history.Span{}
		c, sp, ok := s.started(func(c *claim, sp *history.Span) bool {
			for _, o := range s.jobs[sp.Granted.Gate].claims {
				if n := s.spanOf[o.lock]; n != nil && n.Confirmed && n.From > sp.To && sp.Ended != nil && s.excuse(c.lock) == "" && next[c] == nil {
					next[c] = n
				}
			}
			return next[c] != nil
		})
		return ok && s.believes(sp, next[c].From+1)
	}},
	{"believe in a run after its deadline", []string{"jobs/deadline"}, func(s *scene) bool {
		_, sp, ok := s.started(func(_ *claim, sp *history.Span) bool { return sp.Ended != nil })
		return ok && s.holdsTooLong(sp)
	}},
	{"call for a run after its start", []string{"jobs/early"}, func(s *scene) bool {
		_, sp, ok := s.started(everyone)
		if !ok {
			return false
		}
		call := s.opByTag[s.startOf(sp).Call.Attr["call"]].Call
		return s.edit(func(e *history.Event) bool { return of(call)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.At = sp.From + 1 }) > 0
	}},
	{"start a run again after its end", []string{"jobs/terminal"}, func(s *scene) bool {
		_, sp, ok := s.started(func(_ *claim, sp *history.Span) bool { return sp.Ended != nil })
		if ok {
			e := *sp.Ended
			e.Kind, e.At = history.KindHeld, e.At+1
			s.events = append(s.events, e)
		}
		return ok
	}},
	{"write by the guard of a run that has ended", []string{"jobs/guard"}, func(s *scene) bool {
		e, ok := one(s, s.h.Events, func(e history.Event) bool {
			return e.Kind == history.KindEffect && isJob(e.Gate) && e.Outcome == history.OK && s.byToken[id{e.Gate, e.Token}].gone != never
		})
		if !ok {
			return false
		}
		gone := s.byToken[id{e.Gate, e.Token}].gone
		s.edit(func(o *history.Event) bool { return o.Kind == history.KindEffect && o.Seq == e.Seq }, func(o *history.Event) { o.Rev = gone })
		return true
	}},
	{"refuse a run", []string{"jobs/refused"}, func(s *scene) bool {
		e, ok := one(s, s.h.Events, func(e history.Event) bool {
			r := s.byToken[id{e.Gate, e.Token}]
			return e.Kind == history.KindEffect && isJob(e.Gate) && e.Outcome == history.OK && s.stoodAt(r, e.At)
		})
		if ok {
			s.edit(func(o *history.Event) bool { return o.Kind == history.KindEffect && o.Seq == e.Seq }, func(o *history.Event) { o.Outcome = history.Fail })
		}
		return ok
	}},
	{"pause a job before it started", []string{"jobs/paused"}, func(s *scene) bool {
		c, sp, ok := s.started(func(_ *claim, sp *history.Span) bool { return len(s.lives[sp.Granted.Gate+"/pause"]) == 0 })
		if !ok {
			return false
		}
		s.events = append(s.events, history.Event{At: 1, Kind: history.KindPut, Rev: c.token - 1,
			KV: &history.KV{Key: history.Bytes(simPrefix + sp.Granted.Gate + "/pause"), Create: c.token - 1, Version: 1}})
		return true
	}},
	{"forget AtLeast", []string{"jobs/held"}, func(s *scene) bool {
		c, _, ok := s.started(func(c *claim, _ *history.Span) bool { return c.hold != nil })
		return ok && s.drop(tappedKey(c.token, history.KindPut, "/cooldown")) > 0
	}},
	{"return a pause that never was", []string{"jobs/reported"}, func(s *scene) bool {
		if len(s.lives["job/a/pause"]) > 0 {
			return false
		}
		return s.edit(func(e *history.Event) bool {
			return e.Kind == history.KindReturn && e.Name == history.JobDo && e.Gate == "job/a" && e.Cause == "still running"
		}, func(e *history.Event) { e.Cause = "paused" }) > 0
	}},
}
