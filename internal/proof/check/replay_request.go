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
	gate     *gate  // of its claims: each is admitted as soon as it exists
	attempts []*attempt
	holder   *attempt   // whose claim exists
	now      *version   // the present record, or nil
	past     []*version // records that went
	outcomes []*version
	released []*version // by the attempts themselves
	breaches []breach
}

// attempt is one claim and its record.
type attempt struct {
	token   int64
	rec     record.Attempt
	claim   *request
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
	alone     bool // no claim went with it
	underWork bool // a claim existed when it was removed, and still does
}

func (s *version) finished() bool {
	return s != nil && (s.rec.State == record.AttemptDone || s.rec.State == record.AttemptFailed)
}

// runRequests applies one revision to the idempotency keys that it touches.
func (s *store) runRequests(c history.Commit) {
	type events struct{ rec, claim *history.Event }
	all := map[string]*events{}
	for i, e := range c.Events {
		k := s.layout.parse(s.short(e))
		if k.kind != keyRecord && k.kind != keyClaim {
			continue
		}
		if all[k.gate] == nil {
			all[k.gate] = &events{}
		}
		if k.kind == keyRecord {
			all[k.gate].rec = &c.Events[i]
		} else {
			all[k.gate].claim = &c.Events[i]
		}
	}
	for name, ev := range all {
		n := s.entries[name]
		if n == nil {
			n = &idem{name: name, gate: &gate{name: name, fixed: 1}}
			s.entries[name] = n
		}
		n.apply(s, c, ev.rec, ev.claim)
	}
}

func (n *idem) apply(s *store, c history.Commit, rec, claim *history.Event) {
	worked := n.holder
	switch {
	case claim == nil:
	case claim.Kind == history.KindDelete:
		n.end(s, c)
	case claim.KV.Version > 1:
		n.breach("claim", c, string(claim.KV.Key), "its claim was written again")
	default:
		n.begin(s, c, rec, claim)
		return
	}
	switch {
	case rec == nil:
	case rec.Kind == history.KindDelete:
		if n.now != nil {
			n.now.gone, n.now.goneAt, n.now.alone, n.now.underWork = c.Rev, c.At, worked == n.holder, n.holder != nil
			n.past = append(n.past, n.now)
			n.now = nil
		}
	default:
		n.write(c, rec, worked)
	}
}

// end applies the end of a claim, by whatever.
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

// begin applies a claim.
func (n *idem) begin(s *store, c history.Commit, rec, claim *history.Event) {
	kv := claim.KV
	a := &attempt{token: kv.Create, before: n.now}
	a.claim = &request{gate: n.gate, key: string(kv.Key), parsed: parsedKey{kind: keyClaim, gate: n.name, weight: 1, lease: kv.Lease},
		token: kv.Create, putAt: c.At, lease: kv.Lease, admitted: c.Rev, gone: never, goneAt: never}
	n.attempts, n.holder = append(n.attempts, a), a
	v, _ := record.DecodeClaim([]byte(kv.Value))
	ok := rec != nil && rec.Kind == history.KindPut
	if ok {
		a.rec, ok = record.DecodeAttempt([]byte(rec.KV.Value))
	}
	r := a.rec
	a.claim.rec.Owner = r.Owner
	if !ok || r.State != record.AttemptWorking || r.Nonce != v.Nonce || r.Lease != v.Lease || r.Lease != kv.Lease {
		n.breach("claim", c, "", "a claim of %q came without its record", v.Owner)
		return
	}
	if l := s.leases[kv.Lease]; l != nil && l.gone < c.Rev {
		n.breach("claim", c, "", "attempt %d was begun by %s, whose session had ended", r.Number, r.Owner)
	}
	switch b := n.now; {
	case b == nil:
		if r.Number != 1 {
			n.breach("number", c, "", "attempt %d was begun by %s, and there was none before", r.Number, r.Owner)
		}
	case b.finished():
		n.breach("again", c, "", "attempt %d was begun by %s after attempt %d had recorded that it is %s", r.Number, r.Owner, b.rec.Number, b.rec.State)
	case b.rec.Refuse && b.rec.State == record.AttemptWorking:
		n.breach("refuse", c, "", "attempt %d was begun by %s though attempt %d was lost, and may not be repeated", r.Number, r.Owner, b.rec.Number)
	case r.Number != b.rec.Number+1 || b.of != nil && a.token <= b.of.token:
		n.breach("number", c, "", "attempt %d, token %d, was begun by %s after attempt %d", r.Number, a.token, r.Owner, b.rec.Number)
	case !bytes.Equal(r.Print, b.rec.Print):
		n.breach("payload", c, "", "attempt %d was begun by %s with another payload", r.Number, r.Owner)
	case !bytes.Equal(r.Body, b.rec.Body):
		n.breach("steps", c, "", "attempt %d was begun by %s with other recovery points than there were", r.Number, r.Owner)
	}
	n.now = n.stand(c, rec, r, a)
}

func (n *idem) stand(c history.Commit, e *history.Event, r record.Attempt, a *attempt) *version {
	return &version{text: string(e.KV.Value), rec: r, of: a, lease: e.KV.Lease, rev: c.Rev, at: c.At, gone: never, goneAt: never}
}

// write applies a change of the record by which nothing is begun.
func (n *idem) write(c history.Commit, e *history.Event, worked *attempt) {
	r, ok := record.DecodeAttempt([]byte(e.KV.Value))
	if c.Listed || !ok {
		if !c.Listed {
			n.breach("record", c, string(e.KV.Key), "its record cannot be read: %.80q", e.KV.Value)
		}
		n.now = n.stand(c, e, r, nil)
		return
	}
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
	case b.of != nil && b.of.before != nil && now.text == b.of.before.text && n.holder == nil:
		b.of.undone = true
		now.of, now.rev, now.at = b.of.before.of, b.of.before.rev, b.of.before.at
	case r.Nonce != b.rec.Nonce || r.Lease != b.rec.Lease || r.Number != b.rec.Number:
		n.breach("zombie", c, "", "attempt %d of %s wrote that it is %s, when attempt %d of %s had taken over", r.Number, r.Owner, r.State, b.rec.Number, b.rec.Owner)
	case !bytes.Equal(r.Print, b.rec.Print):
		n.breach("payload", c, "", "the payload of attempt %d was changed", r.Number)
	case r.State == record.AttemptWorking:
		n.steps(c, b.rec, r)
	case r.By != "" && worked != nil:
		n.breach("zombie", c, "", "it was resolved by %s while attempt %d was under way", r.By, b.rec.Number)
	case r.By == "" && worked != nil && (worked != b.of || n.holder != nil):
		n.breach("zombie", c, "", "attempt %d of %s wrote that it is %s, and a claim was left", r.Number, r.Owner, r.State)
	case r.By == "" && r.State != record.AttemptReleased && b.of != nil && r.Token != b.of.token:
		n.breach("zombie", c, "", "attempt %d of %s wrote its outcome with token %d, which is not its own", r.Number, r.Owner, r.Token)
	case r.State == record.AttemptReleased && !bytes.Equal(r.Body, b.rec.Body):
		n.breach("steps", c, "", "attempt %d was released with other recovery points than it had", r.Number)
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
