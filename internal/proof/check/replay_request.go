package check

import (
	"bytes"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// idem is what the tap has seen of one idempotency key.
type idem struct {
	name     string // of the record's key
	gate     *gate  // of its attempts: each is admitted as soon as it is recorded
	attempts []*attempt
	holder   *attempt   // that is in progress: the record names it as working, and its session exists
	now      *version   // the present record, or nil
	past     []*version // records that went
	outcomes []*version
	released []*version // by the attempts themselves
	breaches []breach
}

// attempt is one attempt, from the record that names it.
type attempt struct {
	token   int64
	rec     record.Attempt
	claim   *request // while it is in progress
	before  *version // what it has replaced
	undone  bool     // it was taken back
	outcome *version // that it, or the operator who resolved it, has recorded
}

// version is one version of a record.
type version struct {
	text      string
	rec       record.Attempt
	of        *attempt // the latest
	lease     int64
	rev, at   int64
	gone      int64 // the record went, or another generation began
	goneAt    int64
	underWork bool // its attempt was in progress when it was removed
}

// lost reports whether an attempt that is not in progress has left it without an end.
func (s *version) lost() bool {
	return s.rec.State == record.AttemptWorking || s.rec.State == record.AttemptLost
}

func (s *version) finished() bool {
	return s != nil && (s.rec.State == record.AttemptDone || s.rec.State == record.AttemptFailed)
}

// runRequests applies one revision, of those keys, to the idempotency keys that it touches.
func (s *store) runRequests(c history.Commit, keys []parsedKey) {
	for i, e := range c.Events {
		if k := keys[i]; k.kind == keyAlive && e.Kind == history.KindDelete {
			for _, n := range s.entries {
				if n.holder != nil && n.holder.rec.Lease == k.lease {
					n.end(s, c)
				}
			}
		}
	}
	for i := range c.Events {
		k := keys[i]
		if k.kind != keyRecord {
			continue
		}
		n := s.entries[k.gate]
		if n == nil {
			n = &idem{name: k.gate, gate: &gate{name: k.gate, fixed: 1}}
			s.entries[k.gate] = n
		}
		n.apply(s, c, &c.Events[i])
	}
}

func (n *idem) apply(s *store, c history.Commit, e *history.Event) {
	if e.Kind == history.KindDelete {
		if n.now != nil {
			n.now.gone, n.now.goneAt, n.now.underWork = c.Rev, c.At, n.holder != nil
			n.past = append(n.past, n.now)
			n.now = nil
		}
		if n.holder != nil {
			n.holder.claim.erased = true
		}
		n.end(s, c)
		return
	}
	r, ok := record.DecodeAttempt([]byte(e.KV.Value))
	switch b := n.now; {
	case c.Listed || !ok:
		if !c.Listed {
			n.breach("record", c, string(e.KV.Key), "its record cannot be read: %.80q", e.KV.Value)
		}
		n.end(s, c)
		n.now = n.stand(c, e, r, nil)
	case n.restores(e):
		n.end(s, c)
		b.of.undone = true
		n.now = n.stand(c, e, r, b.of.before.of)
		n.now.rev, n.now.at = b.of.before.rev, b.of.before.at
	case r.State == record.AttemptWorking && (b == nil || r.Nonce != b.rec.Nonce || r.Lease != b.rec.Lease):
		n.begin(s, c, e, r)
	default:
		worked := n.holder
		if r.State != record.AttemptWorking {
			n.end(s, c)
		}
		n.write(c, e, r, worked)
	}
}

// restores reports whether a put takes an attempt back: it restores what that has replaced.
func (n *idem) restores(e *history.Event) bool {
	b := n.now
	return b != nil && b.of != nil && b.of.before != nil && b.rec.State == record.AttemptWorking && string(e.KV.Value) == b.of.before.text
}

// end ends the attempt in progress, by whatever.
func (n *idem) end(s *store, c history.Commit) {
	if n.holder == nil {
		return
	}
	r := n.holder.claim
	r.gone, r.goneAt, r.how = c.Rev, c.At, plain
	if l := s.leases[r.lease]; l != nil && (l.gone <= c.Rev || l.loose) {
		r.how = withLease
	}
	n.holder = nil
}

// begin applies a record that names a new attempt.
func (n *idem) begin(s *store, c history.Commit, e *history.Event, r record.Attempt) {
	beside := n.holder
	n.end(s, c)
	a := &attempt{token: c.Rev, before: n.now, rec: r}
	a.claim = &request{gate: n.gate, key: string(e.KV.Key), parsed: parsedKey{kind: keyRecord, gate: n.name, weight: 1, lease: r.Lease},
		token: c.Rev, putAt: c.At, lease: r.Lease, admitted: c.Rev, gone: never, goneAt: never}
	a.claim.rec.Owner = r.Owner
	n.attempts, n.holder = append(n.attempts, a), a
	if l := s.leases[r.Lease]; l != nil && l.gone < c.Rev {
		n.breach("claim", c, "", "attempt %d was begun by %s, whose session had ended", r.Number, r.Owner)
		n.end(s, c)
	}
	switch b := n.now; {
	case beside != nil:
		n.breach("claim", c, "", "attempt %d was begun by %s while attempt %d of %s was in progress", r.Number, r.Owner, beside.rec.Number, beside.rec.Owner)
	case b == nil:
		if r.Number != 1 {
			n.breach("number", c, "", "attempt %d was begun by %s, and there was none before", r.Number, r.Owner)
		}
	case b.finished():
		n.breach("again", c, "", "attempt %d was begun by %s after attempt %d had recorded that it is %s", r.Number, r.Owner, b.rec.Number, b.rec.State)
	case b.rec.Refuse && b.lost():
		n.breach("refuse", c, "", "attempt %d was begun by %s though attempt %d was lost, and may not be repeated", r.Number, r.Owner, b.rec.Number)
	case r.Number != b.rec.Number+1:
		n.breach("number", c, "", "attempt %d, token %d, was begun by %s after attempt %d", r.Number, a.token, r.Owner, b.rec.Number)
	case !bytes.Equal(r.Print, b.rec.Print):
		n.breach("payload", c, "", "attempt %d was begun by %s with another payload", r.Number, r.Owner)
	case !bytes.Equal(r.Body, b.rec.Body):
		n.breach("steps", c, "", "attempt %d was begun by %s with other recovery points than there were", r.Number, r.Owner)
	}
	n.now = n.stand(c, e, r, a)
}

func (n *idem) stand(c history.Commit, e *history.Event, r record.Attempt, a *attempt) *version {
	return &version{text: string(e.KV.Value), rec: r, of: a, lease: e.KV.Lease, rev: c.Rev, at: c.At, gone: never, goneAt: never}
}

// write applies a change of the record by which nothing is begun. worked is the attempt that was in progress.
func (n *idem) write(c history.Commit, e *history.Event, r record.Attempt, worked *attempt) {
	b := n.now
	if b == nil {
		n.breach("zombie", c, "", "attempt %d of %s wrote that it is %s when there was no record", r.Number, r.Owner, r.State)
		n.now = n.stand(c, e, r, nil)
		return
	}
	now := n.stand(c, e, r, b.of)
	switch {
	case now.text == b.text:
		now.rev, now.at = b.rev, b.at // it has existed since
	case b.finished():
		n.breach("changed", c, "", "the outcome of attempt %d, %s, was changed to that of attempt %d, %s", b.rec.Number, b.rec.State, r.Number, r.State)
	case r.Nonce != b.rec.Nonce || r.Lease != b.rec.Lease || r.Number != b.rec.Number:
		n.breach("zombie", c, "", "attempt %d of %s wrote that it is %s, when attempt %d of %s had taken over", r.Number, r.Owner, r.State, b.rec.Number, b.rec.Owner)
	case !bytes.Equal(r.Print, b.rec.Print):
		n.breach("payload", c, "", "the payload of attempt %d was changed", r.Number)
	case r.State == record.AttemptWorking:
		n.steps(c, b.rec, r)
	case r.By != "" && worked != nil:
		n.breach("zombie", c, "", "it was resolved by %s while attempt %d was under way", r.By, b.rec.Number)
	case r.By == "" && now.finished() && b.of != nil && r.Token != b.of.token:
		n.breach("zombie", c, "", "attempt %d of %s wrote its outcome with token %d, which is not its own", r.Number, r.Owner, r.Token)
	case (r.State == record.AttemptReleased || r.State == record.AttemptLost) && !bytes.Equal(r.Body, b.rec.Body):
		n.breach("steps", c, "", "attempt %d was left with other recovery points than it had", r.Number)
	}
	if r.State == record.AttemptReleased && r.By == "" && now.of == b.of {
		n.released = append(n.released, now)
	}
	if now.finished() && !b.finished() {
		n.outcomes = append(n.outcomes, now)
		if now.of != nil {
			now.of.outcome = now
		}
	}
	n.now = now
}

// steps: what an attempt has reached, it stays at.
func (n *idem) steps(c history.Commit, was, is record.Attempt) {
	before, _ := record.DecodeSteps(was.Body)
	after, ok := record.DecodeSteps(is.Body)
	same := ok && len(after) > len(before)
	for i := range before {
		same = same && after[i].Name == before[i].Name && bytes.Equal(after[i].Value, before[i].Value)
	}
	if !same {
		n.breach("steps", c, "", "attempt %d lost a recovery point, or changed one", is.Number)
	}
}

func (n *idem) breach(rule string, c history.Commit, key, format string, args ...any) {
	n.breaches = append(n.breaches, breach{rule: rule, key: key, text: fmt.Sprintf(format, args...), rev: c.Rev, at: c.At})
}
