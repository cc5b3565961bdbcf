package check

import (
	"cmp"
	"crypto/sha256"
	hexes "encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Requests is C6: idempotent requests. It replays the tap as the life of records and
// of the sessions that they name (replay_request.go), and joins the calls of functions to it. A record that is
// deleted, or has expired, begins anew.
//
// Rules of what is in etcd:
//
//	claim     an attempt was begun beside one in progress, or by a session that had ended
//	record    a record cannot be read
//	again     an attempt was begun after an outcome was recorded
//	number    the numbers of attempts, or their tokens, do not rise one by one
//	refuse    a lost attempt was repeated that may not be
//	payload   a record changed its payload's fingerprint
//	steps     recovery points were lost or changed
//	changed   an outcome changed
//	zombie    an attempt that is not the latest wrote, or one was resolved that had not ended
//	returned  an attempt was given up in etcd while its function ran, or after it had
//	          returned a value
//	kept      a record went before its time, or while an attempt worked on it
//	with      what was given to Attempt.Attach was done without the outcome, or not with it
//	left      an attempt is in progress while nothing runs, or anything exists after all is over
//
// Rules of what functions and callers observe:
//
//	twice     a function was called twice by one claim, or for one attempt
//	token     a function was called that has no claim, or another's, or one taken back
//	early     a function was called before its claim was asked for
//	reported  a call returned what was at no time so: a value that was not
//	          recorded, or another than was
//
// And of attempts, which are judged as permits of a mutex are by belief, with the same
// exceptions:
//
//	overlap   two attempts at a request believed in themselves at some instant
//	stale     an attempt believed in itself when its claim had gone
//	deadline  an attempt was reported as live after its own deadline
//	terminal  an attempt that had ended was reported as live again
type Requests struct{}

// Name implements Checker.
func (Requests) Name() string { return "requests" }

// check implements Checker.
func (Requests) check(v *view) []Finding {
	f := v.beliefs(v.tries)
	if !v.tapped {
		return f
	}
	for _, name := range slices.Sorted(maps.Keys(v.entries)) {
		n := v.entries[name]
		for _, b := range n.breaches {
			finding := at(b.rev, bad(b.rule, name, b.at, "%s", b.text))
			if b.key != "" && v.tampered(b.key, b.rev) != nil {
				finding.Level = Excused
			}
			f = append(f, finding)
		}
		for _, a := range n.attempts {
			f = append(f, v.returned(n, a)...)
		}
		for _, s := range n.released {
			f = append(f, v.releasedRequest(n, s)...)
		}
		for _, s := range n.past {
			for _, finding := range v.keptRecord(n, s) {
				if v.hastened(s.gone) != nil {
					finding.Level = Excused
				}
				f = append(f, finding)
			}
		}
	}
	f = append(f, v.executions()...)
	f = append(f, v.effectsOfRequests()...)
	for i := range v.ops {
		if op := &v.ops[i]; op.Call.Name == history.RequestDo && op.Return != nil {
			f = append(f, v.toldOfRequest(op)...)
		}
	}
	return append(f, v.leftOfRequests()...)
}

// startOf returns the call of the function that a belief is of.
func (v *view) startOf(s *history.Span) *history.Op {
	return v.opByTag[history.Tag(s.Granted.Client, s.Granted.Op)]
}

// finish returns how a function has returned, or nil.
func (v *view) finish(name string, token int64) *history.Op {
	if ops := v.releases[id{name, token}]; len(ops) > 0 {
		return ops[0]
	}
	return nil
}

// confirmed reports whether the call of a function has returned that its outcome is recorded. Otherwise
// etcd may have received the outcome late, on a lease from before, and the process that would have
// moved it to a fresh one may be gone.
func (v *view) confirmed(start *history.Op) bool {
	call := v.opByTag[start.Call.Attr["call"]]
	return call == nil || call.Outcome() == history.OK
}

// finished returns when a function has returned, or 0.
func (v *view) finished(name string, token int64) int64 {
	if op := v.finish(name, token); op != nil {
		return op.Call.At
	}
	return 0
}

// executions joins the calls of functions to claims.
func (v *view) executions() (f []Finding) {
	claims := map[id]*attempt{}
	for _, n := range v.entries {
		for _, a := range n.attempts {
			claims[id{n.name, a.token}] = a
		}
	}
	seen := map[id]*history.Span{}
	for i := range v.tries {
		s := &v.tries[i]
		g := s.Granted
		k, op := id{g.Gate, g.Token}, v.startOf(s)
		if op == nil {
			continue
		}
		if o := seen[k]; o != nil {
			f = append(f, bad("twice", g.Gate, s.From, "token %d was started by %s and by %s", k.token, holder(o), holder(s)))
		}
		seen[k] = s
		switch a := claims[k]; {
		case a == nil:
			f = append(f, bad("token", g.Gate, s.From, "%s was started with token %d, which is no claim's", holder(s), k.token))
		case a.undone:
			f = append(f, at(a.token, bad("token", g.Gate, s.From, "%s was started, and its claim was taken back", holder(s))))
		case int64(a.rec.Number) != op.Call.N || a.rec.Owner != g.Client:
			f = append(f, at(a.token, bad("token", g.Gate, s.From, "%s was started as attempt %d with token %d, by which %s has claimed attempt %d",
				holder(s), op.Call.N, k.token, a.rec.Owner, a.rec.Number)))
		case v.notBefore(a.token) > s.From:
			f = append(f, at(a.token, bad("early", g.Gate, s.From, "%s was started %s before it can have been claimed", holder(s), ms(v.notBefore(a.token)-s.From))))
		}
	}
	return f
}

// returned checks why a claim was removed without an outcome, if its session removed it. An attempt
// that has returned a value keeps its claim until the value is recorded.
func (v *view) returned(n *idem, a *attempt) []Finding {
	s, r := v.spanOf[a.claim], a.claim
	if s == nil || a.outcome != nil || r.gone == never || r.how != plain || v.struck(r) != nil || v.tampered(r.key, r.gone) != nil || v.named(v.prefix+n.name) {
		return nil
	}
	start, end := v.startOf(s), v.finish(n.name, a.token)
	longest, err := time.ParseDuration(start.Call.Attr["atmost"])
	tooLong := err == nil && start.Call.At+int64(longest) <= addTime(r.goneAt, slip)
	switch {
	case end == nil || end.Call.At > r.goneAt:
		if !tooLong {
			return []Finding{at(r.gone, bad("returned", n.name, r.goneAt, "attempt %d was given up while its function ran (%s)", a.rec.Number, holder(s)))}
		}
	case end.Call.Attr["as"] == record.AttemptDone && start.Call.Attr["with"] != WithConflict && !tooLong:
		return []Finding{at(r.gone, bad("returned", n.name, r.goneAt, "attempt %d was given up although its function had returned a value (%s)", a.rec.Number, holder(s)))}
	}
	return nil
}

// NothingDone is what a function that has returned idempotency.NothingDone has returned as.
const NothingDone = "nothing done"

// mayRelease reports whether a function that has returned may have its attempt released: it says that
// nothing was done; or it has failed, or its outcome cannot be recorded, and the attempt may be repeated.
func mayRelease(a *attempt, start, end *history.Op) bool {
	as := end.Call.Attr["as"]
	return as == NothingDone || !a.rec.Refuse && (as == record.AttemptReleased || start.Call.Attr["with"] == WithConflict)
}

// releasedRequest checks a record by which an attempt has released its key.
func (v *view) releasedRequest(n *idem, s *version) []Finding {
	if s.of == nil || v.spanOf[s.of.claim] == nil {
		return nil
	}
	end := v.finish(n.name, s.of.token)
	if end == nil || mayRelease(s.of, v.startOf(v.spanOf[s.of.claim]), end) {
		return nil
	}
	return []Finding{at(s.rev, bad("refuse", n.name, s.at, "attempt %d, which may not be repeated, was released after its function had returned as %q", s.rec.Number, end.Call.Attr["as"]))}
}

// What a function has given to Attempt.Attach, as its start's Attr["with"] names it. It counts
// if the function returns a value.
const (
	WithPut      = "put"      // the attempt's token, to "register/" and the record's key
	WithConflict = "conflict" // the same under a condition that is never met
)

// keptRecord checks whether a record that was removed had existed long enough.
func (v *view) keptRecord(n *idem, s *version) []Finding {
	if v.tampered(v.prefix+n.name, s.gone) != nil || v.deleteCalled(n.name, s) || s.of == nil {
		return nil
	}
	a, span := s.of, v.spanOf[s.of.claim]
	if span == nil {
		return nil // it was never started
	}
	start, end := v.startOf(span), v.finish(n.name, a.token)
	switch {
	case s.underWork && (end == nil || end.Call.At > s.goneAt):
		return []Finding{at(s.gone, bad("kept", n.name, s.goneAt, "the record of attempt %d was deleted while it continued", s.rec.Number))}
	case s.underWork && mayRelease(a, start, end):
		return nil
	}
	of, since := "retain", v.notBefore(s.rev)
	switch {
	case s.rec.By != "":
		of, since = "", max(since, a.claim.putAt)
	case s.lost() && (end == nil || !mayRelease(a, start, end)):
		of, since = "unknown", span.To
	case s.lost():
		return nil // it was released late
	}
	if of == "retain" && !v.confirmed(start) {
		return nil
	}
	least, err := time.ParseDuration(start.Call.Attr[of])
	if of == "" {
		least, err = time.ParseDuration(v.h.Setting(SettingRetain))
	}
	if stood := v.seen(s.gone) - since; err == nil && stood < int64(least) {
		return []Finding{at(s.gone, bad("kept", n.name, s.goneAt, "the record of attempt %d, %s, went %s after it was written, and should be kept for %s", s.rec.Number, s.rec.State, ms(stood), least))}
	}
	return nil
}

// deleteCalled reports whether a call has asked for the deletion of a record.
func (v *view) deleteCalled(name string, s *version) bool {
	return slices.ContainsFunc(v.ops, func(op history.Op) bool {
		return op.Call.Name == history.RequestDelete && op.Call.Gate == name && op.Call.At <= s.goneAt && op.Outcome() != history.Fail &&
			(op.Outcome() == history.Unknown || op.Ended() >= v.notBefore(s.gone))
	})
}

// effectsOfRequests: what came with an outcome came with it, and with nothing else.
func (v *view) effectsOfRequests() (f []Finding) {
	prefix := v.prefix + "register/idempotency/"
	done := map[id]int64{} // by token: the revision of the effect
	for _, p := range v.others {
		if !strings.HasPrefix(p.key, prefix) {
			continue
		}
		name := "idempotency/" + strings.TrimPrefix(p.key, prefix)
		token, _ := strconv.ParseInt(p.value, 10, 64)
		k := id{name, token}
		n := v.entries[name]
		if n == nil || !slices.ContainsFunc(n.outcomes, func(o *version) bool { return o.rev == p.rev && o.rec.Token == token && o.rec.By == "" }) {
			f = append(f, at(p.rev, bad("with", name, p.at, "the effect of token %d was done without its outcome", token)))
		} else if done[k] != 0 {
			f = append(f, at(p.rev, bad("with", name, p.at, "the effect of token %d was done twice", token)))
		}
		done[k] = p.rev
	}
	for i := range v.tries {
		g := v.tries[i].Granted
		op, n := v.startOf(&v.tries[i]), v.entries[g.Gate]
		if op == nil || n == nil || op.Call.Attr["with"] == "" {
			continue
		}
		for _, o := range n.outcomes {
			if o.rec.Token != g.Token || o.rec.By != "" {
				continue
			}
			if with := op.Call.Attr["with"] == WithPut && o.rec.State == record.AttemptDone; with != (done[id{g.Gate, g.Token}] != 0) {
				f = append(f, at(o.rev, bad("with", g.Gate, o.at, "the outcome of token %d was recorded: its effect came with it: %v", g.Token, !with)))
			}
		}
	}
	return f
}

// toldOfRequest checks whether what a call returned is so.
func (v *view) toldOfRequest(op *history.Op) []Finding {
	r, n := op.Return, v.entries[op.Call.Gate]
	late := op.Call.At - v.cacheFor - v.ttl - v.lag
	ok := true
	switch r.Cause {
	case history.Ran, history.Replayed, history.FailedBefore:
		state := record.AttemptDone
		if r.Cause == history.FailedBefore {
			state = record.AttemptFailed
		}
		ok = n != nil && slices.ContainsFunc(n.outcomes, func(o *version) bool {
			gone := o.goneAt
			return o.rec.Token == r.Token && o.rec.State == state && v.notBefore(o.rev) <= r.At && gone >= late &&
				(r.Attr["sum"] == "" || sum(o.rec) == r.Attr["sum"]) && (r.Cause != history.Ran || o.rec.Owner == r.Client)
		})
	case history.Mismatch:
		ok = slices.ContainsFunc(v.ops, func(o history.Op) bool {
			return o.Call.Name == history.RequestDo && o.Call.Gate == op.Call.Gate && o.Call.At <= r.At && o.Call.Attr["payload"] != op.Call.Attr["payload"]
		})
	case history.InProgress:
		ok = n != nil && slices.ContainsFunc(n.attempts, func(a *attempt) bool {
			return v.notBefore(a.token) <= r.At && (a.claim.goneAt >= op.Call.At || a.rec.Owner == r.Client)
		})
	case history.UnknownFate:
		ok = n != nil && slices.ContainsFunc(n.attempts, func(a *attempt) bool {
			return a.claim.gone != never && v.notBefore(a.claim.gone) <= r.At
		})
	}
	if ok {
		return nil
	}
	return []Finding{bad("reported", op.Call.Gate, r.At, "%s (call %d) returned %q with token %d, which was at no time so", op.Call.Client, op.Call.Op, r.Cause, cmp.Or(r.Token, -1))}
}

// sum is what a value is known by.
func sum(r record.Attempt) string {
	if r.Parts > 0 {
		return hexes.EncodeToString(r.Sum)
	}
	s := sha256.Sum256(r.Body)
	return hexes.EncodeToString(s[:])
}

// leftOfRequests finds the keys that exist when they should not.
func (v *view) leftOfRequests() (f []Finding) {
	for mark, kinds := range map[string][]keyKind{
		history.MarkIdle:    nil,
		history.MarkDrained: {keyRecord, keyPart},
	} {
		for _, m := range v.h.Marks(mark) {
			rev, ok := v.tappedBefore(m.At)
			for _, n := range v.entries {
				for _, a := range n.attempts {
					if ok && a.token <= rev && a.claim.gone > rev {
						f = append(f, at(a.token, bad("left", n.name, m.At, "%s: attempt %d is in progress, and belongs to no request", mark, a.rec.Number)))
					}
				}
			}
			for _, k := range v.keysAt(rev) {
				if ok && slices.Contains(kinds, k.parsed.kind) {
					f = append(f, at(k.created, bad("left", k.parsed.gate, m.At, "%s: %q exists and belongs to no request", mark, k.name)))
				}
			}
		}
	}
	return f
}
