package check

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// tried is an attempt whose function was called.
type tried struct {
	*attempt
	n    *idem
	span *history.Span
	call *history.Op // that led to it
	end  *history.Op // of its function
}

// trials are the attempts whose functions were called, at keys that no nemesis has tampered
// with.
func (s *scene) trials() (all []tried) {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		n := s.entries[name]
		for _, a := range n.attempts {
			sp := s.spanOf[a.claim]
			if sp == nil || s.named(s.prefix+name) || s.named(a.claim.key) {
				continue
			}
			start := s.startOf(sp)
			all = append(all, tried{a, n, sp, s.opByTag[start.Call.Attr["call"]], s.finish(name, a.token)})
		}
	}
	return all
}

func (s *scene) tried(fits func(t tried) bool) (tried, bool) { return one(s, s.trials(), fits) }

func anyTry(tried) bool { return true }

// ended reports whether an attempt has recorded its own outcome.
func (t tried) ended() bool { return t.outcome != nil && t.outcome.rec.By == "" }

// lostBefore returns the attempt that was lost before another, if there was one.
func (s *scene) lostBefore(t tried) (before tried, ok bool) {
	if t.before == nil || t.before.of == nil || !t.before.lost() || t.before.rec.By != "" {
		return before, false
	}
	return one(s, s.trials(), func(o tried) bool { return o.attempt == t.before.of })
}

// isStart finds the call of an attempt's function.
func (t tried) isStart(e *history.Event) bool {
	return of(t.span.Granted)(e) && e.Kind == history.KindCall
}

// edits changes the record that was written at a revision.
func (s *scene) edits(n *idem, rev int64, change func(r *record.Attempt)) bool {
	return s.edit(tappedKey(rev, history.KindPut, n.name), func(e *history.Event) {
		kv := *e.KV
		r, _ := record.DecodeAttempt([]byte(kv.Value))
		change(&r)
		kv.Value = history.Bytes(r.Encode())
		e.KV = &kv
	}) > 0
}

// adds has the tap see one more change of a key, at a revision that it has seen.
func (s *scene) adds(kind history.Kind, key string, rev int64, value string) bool {
	seen := s.seen(rev)
	if seen == never {
		return false
	}
	s.events = append(s.events, history.Event{At: seen, Kind: kind, Rev: rev, KV: &history.KV{Key: history.Bytes(s.prefix + key), Create: 1, Version: 2, Value: history.Bytes(value)}})
	return true
}

// free reports whether nothing happened to a key at a revision at which something else did.
func (s *scene) free(n *idem, rev int64) bool {
	return s.seen(rev) != never && !slices.ContainsFunc(s.events, func(e history.Event) bool {
		return e.Rev == rev && e.KV != nil && strings.Contains(string(e.KV.Key), n.name)
	})
}

// soon reports whether an attempt continues at the revision after its claim, and nothing
// happens to its key then.
func (s *scene) soon(t tried) bool { return t.claim.gone > t.token+1 && s.free(t.n, t.token+1) }

// outcomeOf is a record of an attempt's outcome.
func (t tried) outcomeOf() string {
	r := t.rec
	r.State, r.Token, r.Body, r.Size = record.AttemptDone, t.token, []byte("1"), 1
	return r.Encode()
}

// answered picks the return of a call with that result.
func (s *scene) answered(cause string, fits func(op history.Op) bool) (history.Op, bool) {
	return one(s, s.ops, func(op history.Op) bool {
		return op.Call.Name == history.RequestDo && op.Return != nil && op.Return.Cause == cause && fits(op)
	})
}

// returns changes what a call returned.
func (s *scene) returns(op history.Op, change func(e *history.Event)) bool {
	return s.edit(func(e *history.Event) bool { return of(op.Call)(e) && e.Kind == history.KindReturn }, change) > 0
}

func anyCall(history.Op) bool { return true }

// corruptionsOfRequests spoil what a history records of idempotent requests.
var corruptionsOfRequests = []corruption{
	{"lose the record of an attempt", []string{"requests/token"}, func(s *scene) bool {
		t, ok := s.tried(anyTry)
		return ok && s.drop(tappedKey(t.token, history.KindPut, t.n.name)) > 0
	}},
	{"begin an attempt beside another", []string{"requests/claim"}, func(s *scene) bool {
		t, ok := s.tried(s.soon)
		if !ok {
			return false
		}
		r := t.rec
		r.Number, r.Nonce = r.Number+1, "beside"
		return s.adds(history.KindPut, t.n.name, t.token+1, r.Encode())
	}},
	{"claim for a session that has ended", []string{"requests/claim"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			stood := func(k *liveKey) bool { return k.name == alive(t.claim.lease) }
			return t.claim.how == plain && slices.ContainsFunc(s.keysAt(t.token-2), stood) && s.seen(t.token-1) != never
		})
		return ok && s.adds(history.KindDelete, alive(t.claim.lease), t.token-1, "")
	}},
	{"damage a record", []string{"requests/record"}, func(s *scene) bool {
		t, ok := s.tried(tried.ended)
		return ok && s.edit(tappedKey(t.outcome.rev, history.KindPut, t.n.name), func(e *history.Event) {
			kv := *e.KV
			kv.Value = kv.Value[:len(kv.Value)/2]
			e.KV = &kv
		}) > 0
	}},
	{"record an outcome before the next attempt", []string{"requests/again"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			before, ok := s.lostBefore(t)
			return ok && before.claim.gone < t.token-1 && s.free(t.n, t.token-1)
		})
		if !ok {
			return false
		}
		before, _ := s.lostBefore(t)
		return s.adds(history.KindPut, t.n.name, t.token-1, before.outcomeOf())
	}},
	{"skip a number", []string{"requests/number"}, func(s *scene) bool {
		t, ok := s.tried(anyTry)
		return ok && s.edits(t.n, t.token, func(r *record.Attempt) { r.Number++ })
	}},
	{"begin with the number of the attempt before", []string{"requests/number"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.rec.Number > 1 })
		return ok && s.edits(t.n, t.token, func(r *record.Attempt) { r.Number-- })
	}},
	{"forbid the next attempt", []string{"requests/refuse"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { _, ok := s.lostBefore(t); return ok })
		if !ok {
			return false
		}
		return s.edit(func(e *history.Event) bool { return e.KV != nil && string(e.KV.Value) == t.before.text }, func(e *history.Event) {
			kv, r := *e.KV, t.before.rec
			r.Refuse = true
			kv.Value = history.Bytes(r.Encode())
			e.KV = &kv
		}) > 0
	}},
	{"begin with another payload", []string{"requests/payload"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.before != nil })
		return ok && s.edits(t.n, t.token, func(r *record.Attempt) { r.Print = []byte("q") })
	}},
	{"end with another payload", []string{"requests/payload"}, func(s *scene) bool {
		t, ok := s.tried(tried.ended)
		return ok && s.edits(t.n, t.outcome.rev, func(r *record.Attempt) { r.Print = []byte("q") })
	}},
	{"forget the recovery points", []string{"requests/steps"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.before != nil && len(t.before.rec.Body) > 0 })
		return ok && s.edits(t.n, t.token, func(r *record.Attempt) { r.Body = nil })
	}},
	{"change a recovery point", []string{"requests/steps", "requests/zombie"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return len(s.reached(t)) > 1 })
		if !ok {
			return false
		}
		changed := false
		s.edits(t.n, s.reached(t)[1], func(r *record.Attempt) {
			was := r.Body
			r.Body = bytes.Replace(was, []byte("step-0"), []byte("step-x"), 1)
			changed = !bytes.Equal(was, r.Body) // it may have been written again without one
		})
		return changed
	}},
	{"change an outcome", []string{"requests/changed"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			return t.ended() && t.outcome.gone > t.outcome.rev+1 && s.free(t.n, t.outcome.rev+1)
		})
		if !ok {
			return false
		}
		other := t.outcome.rec
		other.Body, other.Size = []byte("2"), 1
		return s.adds(history.KindPut, t.n.name, t.outcome.rev+1, other.Encode())
	}},
	{"let a lost attempt record its outcome while the next one continues", []string{"requests/zombie"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			_, lost := s.lostBefore(t)
			return lost && s.soon(t)
		})
		if !ok {
			return false
		}
		before, _ := s.lostBefore(t)
		return s.adds(history.KindPut, t.n.name, t.token+1, before.outcomeOf())
	}},
	{"resolve an attempt that continues", []string{"requests/zombie"}, func(s *scene) bool {
		t, ok := s.tried(s.soon)
		if !ok {
			return false
		}
		r := t.rec
		r.State, r.By = record.AttemptReleased, "admin"
		return s.adds(history.KindPut, t.n.name, t.token+1, r.Encode())
	}},
	{"record an outcome with another's token", []string{"requests/zombie"}, func(s *scene) bool {
		t, ok := s.tried(tried.ended)
		return ok && s.edits(t.n, t.outcome.rev, func(r *record.Attempt) { r.Token++ })
	}},
	{"lose the outcome of a function that has returned a value", []string{"requests/returned", "requests/reported"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			return t.ended() && t.claim.how == plain && t.claim.gone == t.outcome.rev && t.outcome.rec.State == record.AttemptDone && t.neverTooLong(s)
		})
		return ok && s.drop(tappedKey(t.outcome.rev, history.KindPut, t.n.name)) > 0
	}},
	{"release an attempt while its function continues", []string{"requests/returned"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			return t.outcome == nil && t.claim.how == plain && t.claim.gone != never && t.end != nil && t.end.Call.At < t.claim.goneAt && t.neverTooLong(s)
		})
		return ok && s.drop(func(e *history.Event) bool {
			return e.Name == history.Release && e.Gate == t.n.name && e.Token == t.token
		}) > 0
	}},
	{"promise to keep an outcome for longer", []string{"requests/kept"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			return t.ended() && slices.Contains(t.n.past, t.outcome) && !s.deleteCalled(t.n.name, t.outcome)
		})
		return ok && s.edit(t.isStart, func(e *history.Event) { e.Attr["retain"] = "1h" }) > 0
	}},
	{"promise to keep a lost attempt for longer", []string{"requests/kept"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			return slices.ContainsFunc(t.n.past, func(o *version) bool {
				return o.of == t.attempt && !o.underWork && o.lost() && !s.deleteCalled(t.n.name, o) &&
					(t.end == nil || !mayRelease(t.attempt, s.startOf(t.span), t.end))
			})
		})
		return ok && s.edit(t.isStart, func(e *history.Event) { e.Attr["unknown"] = "1h" }) > 0
	}},
	{"promise to keep what was resolved for longer", []string{"requests/kept"}, func(s *scene) bool {
		_, ok := s.tried(func(t tried) bool {
			return slices.ContainsFunc(t.n.past, func(o *version) bool {
				return o.of == t.attempt && o.rec.By != "" && !s.deleteCalled(t.n.name, o)
			})
		})
		return ok && s.edit(func(e *history.Event) bool { return e.Kind == history.KindSet && e.Name == SettingRetain }, func(e *history.Event) {
			e.Attr = map[string]string{"value": "1h"}
		}) > 0
	}},
	{"let a record go while its attempt continues", []string{"requests/kept"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			seen := s.seen(t.token + 1)
			end := s.finish(t.n.name, t.token)
			return s.soon(t) && (end == nil || end.Call.At > seen) && !s.deleteCalled(t.n.name, &version{gone: t.token + 1, goneAt: seen})
		})
		return ok && s.adds(history.KindDelete, t.n.name, t.token+1, "")
	}},
	{"lose an effect", []string{"requests/with"}, func(s *scene) bool {
		t, ok := s.tried(s.hasEffect)
		return ok && s.drop(tappedKey(t.outcome.rev, history.KindPut, "register/"+t.n.name)) > 0
	}},
	{"have an effect before its outcome", []string{"requests/with"}, func(s *scene) bool {
		t, ok := s.tried(s.hasEffect)
		return ok && s.edit(tappedKey(t.outcome.rev, history.KindPut, "register/"+t.n.name), func(e *history.Event) { e.Rev, e.At = t.token, t.claim.putAt }) > 0
	}},
	{"record an outcome against its condition", []string{"requests/with"}, func(s *scene) bool {
		t, ok := s.tried(s.hasEffect)
		return ok && s.edit(t.isStart, func(e *history.Event) { e.Attr["with"] = WithConflict }) > 0
	}},
	{"leave an attempt in progress", []string{"requests/left"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.claim.how == plain && t.attempt == t.n.attempts[len(t.n.attempts)-1] })
		return ok && s.drop(func(e *history.Event) bool {
			return e.KV != nil && e.Rev >= t.claim.gone && (string(e.KV.Key) == s.prefix+t.n.name || string(e.KV.Key) == s.prefix+alive(t.claim.lease))
		}) > 0
	}},
	{"leave a record behind", []string{"requests/left"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return len(t.n.past) > 0 && t.attempt == t.n.attempts[len(t.n.attempts)-1] })
		return ok && s.drop(tappedKey(t.n.past[len(t.n.past)-1].gone, history.KindDelete, t.n.name)) > 0
	}},
	{"leave a part of a result behind", []string{"requests/left"}, func(s *scene) bool {
		t, ok := s.tried(tried.ended)
		return ok && s.adds(history.KindPut, "idempotency/s/part/x", t.outcome.rev, "")
	}},
	{"start an attempt twice", []string{"requests/twice"}, func(s *scene) bool {
		t, ok := s.tried(anyTry)
		return ok && s.startsAgain(t, func(*history.Event) {})
	}},
	{"start an attempt with another's token", []string{"requests/token"}, func(s *scene) bool {
		t, ok := s.tried(anyTry)
		if ok {
			s.edit(of(t.span.Granted), func(e *history.Event) { e.Token += 1_000_000 })
		}
		return ok
	}},
	{"start another attempt than was claimed", []string{"requests/token"}, func(s *scene) bool {
		t, ok := s.tried(anyTry)
		return ok && s.edit(t.isStart, func(e *history.Event) { e.N++ }) > 0
	}},
	{"start an attempt that was taken back", []string{"requests/token"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.n.takenBack() != nil })
		return ok && s.startsAgain(t, func(e *history.Event) { e.Token = t.n.takenBack().token })
	}},
	{"call for an attempt after its start", []string{"requests/early"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.call != nil })
		return ok && s.edit(func(e *history.Event) bool { return of(t.call.Call)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.At = t.span.From + 1 }) > 0
	}},
	{"replay another value", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.Replayed, anyCall)
		return ok && s.returns(op, func(e *history.Event) { e.Attr = map[string]string{"sum": "0"} })
	}},
	{"replay an outcome that was not recorded yet", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.InProgress, func(op history.Op) bool { return s.outcomeAfter(op) != nil })
		return ok && s.returns(op, func(e *history.Event) { e.Cause, e.Token = history.Replayed, s.outcomeAfter(op).rec.Token })
	}},
	{"return another's outcome to the call that ran", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.Replayed, func(op history.Op) bool {
			o := s.outcome(op)
			return o != nil && o.rec.Owner != op.Call.Client
		})
		return ok && s.returns(op, func(e *history.Event) { e.Cause = history.Ran })
	}},
	{"return a failure when it was done", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.Replayed, func(op history.Op) bool { return s.outcome(op) != nil })
		return ok && s.returns(op, func(e *history.Event) { e.Cause = history.FailedBefore })
	}},
	{"replay an outcome long after it has gone", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.Replayed, anyCall)
		if !ok {
			return false
		}
		for _, e := range []history.Event{op.Call, *op.Return} {
			e.At, e.Op = s.end+int64(time.Hour), e.Op+100_000
			s.events = append(s.events, e)
		}
		return true
	}},
	{"return a mismatch that no call has caused", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.Mismatch, anyCall)
		if !ok {
			return false
		}
		s.edit(func(e *history.Event) bool { return e.Gate == op.Call.Gate && e.Attr["payload"] != "" }, func(e *history.Event) { e.Attr = map[string]string{"payload": "p"} })
		return true
	}},
	{"return an attempt in progress that is not", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.Replayed, func(op history.Op) bool {
			n := s.entries[op.Call.Gate]
			return n != nil && !slices.ContainsFunc(n.attempts, func(a *attempt) bool {
				return s.notBefore(a.token) <= op.Return.At && (a.claim.goneAt >= op.Call.At || a.rec.Owner == op.Call.Client)
			})
		})
		return ok && s.returns(op, func(e *history.Event) { e.Cause = history.InProgress })
	}},
	{"return a lost attempt when none was lost", []string{"requests/reported"}, func(s *scene) bool {
		op, ok := s.answered(history.InProgress, func(op history.Op) bool {
			n := s.entries[op.Call.Gate]
			return n != nil && n.attempts[0].claim.gone != never && s.notBefore(n.attempts[0].claim.gone) > op.Return.At
		})
		return ok && s.returns(op, func(e *history.Event) { e.Cause = history.UnknownFate })
	}},
	{"believe in an attempt while the next one continues", []string{"requests/overlap"}, func(s *scene) bool {
		fits := func(t, o tried) bool {
			return o.n == t.n && o.token < t.token && t.span.Confirmed && o.span.Ended != nil && s.excuse(o.claim) == "" && o.span.To < t.span.From
		}
		t, ok := s.tried(func(t tried) bool { return slices.ContainsFunc(s.trials(), func(o tried) bool { return fits(t, o) }) })
		if !ok {
			return false
		}
		before, _ := s.tried(func(o tried) bool { return fits(t, o) })
		return s.believes(before.span, t.span.From+1)
	}},
	{"believe in an attempt for longer", []string{"requests/stale"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool {
			return t.claim.goneAt != never && s.excuse(t.claim) == "" && t.span.Ended != nil
		})
		return ok && s.believes(t.span, t.claim.goneAt+1)
	}},
	{"believe in an attempt after its deadline", []string{"requests/deadline"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.span.Ended != nil })
		return ok && s.holdsTooLong(t.span)
	}},
	{"start an attempt again after its end", []string{"requests/terminal"}, func(s *scene) bool {
		t, ok := s.tried(func(t tried) bool { return t.span.Ended != nil })
		if ok {
			e := *t.span.Ended
			e.Kind, e.At = history.KindHeld, e.At+1
			s.events = append(s.events, e)
		}
		return ok
	}},
}

// startsAgain has the function of an attempt called once more, with a change.
func (s *scene) startsAgain(t tried, change func(e *history.Event)) bool {
	var more []history.Event
	s.edit(of(t.span.Granted), func(e *history.Event) {
		again := *e
		again.Op += 100_000
		change(&again)
		more = append(more, again)
	})
	s.events = append(s.events, more...)
	return len(more) > 0
}

// reached returns the revisions at which an attempt has reached recovery points.
func (s *scene) reached(t tried) (revs []int64) {
	for _, e := range s.h.Events {
		if e.Kind != history.KindPut || e.Rev <= t.token || string(e.KV.Key) != s.prefix+t.n.name {
			continue
		}
		if r, _ := record.DecodeAttempt([]byte(e.KV.Value)); r.State == record.AttemptWorking && r.Nonce == t.rec.Nonce {
			revs = append(revs, e.Rev)
		}
	}
	return revs
}

// neverTooLong reports whether an attempt may take an hour.
func (t tried) neverTooLong(s *scene) bool { return s.startOf(t.span).Call.Attr["atmost"] == "1h" }

// takenBack returns a claim that was, if there is one.
func (n *idem) takenBack() *attempt {
	for _, a := range n.attempts {
		if a.undone {
			return a
		}
	}
	return nil
}

// hasEffect reports whether an effect came with an attempt's outcome.
func (s *scene) hasEffect(t tried) bool {
	return t.ended() && t.outcome.rec.State == record.AttemptDone && s.startOf(t.span).Call.Attr["with"] == WithPut
}

// outcome returns the outcome that a call returned.
func (s *scene) outcome(op history.Op) *version {
	n := s.entries[op.Call.Gate]
	for _, o := range n.outcomes {
		if o.rec.Token == op.Return.Token {
			return o
		}
	}
	return nil
}

// outcomeAfter returns an outcome that was recorded after a call had returned.
func (s *scene) outcomeAfter(op history.Op) *version {
	n := s.entries[op.Call.Gate]
	for _, o := range n.outcomes {
		if s.notBefore(o.rev) > op.Return.At && o.rec.State == record.AttemptDone {
			return o
		}
	}
	return nil
}
