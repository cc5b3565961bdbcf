package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// view is a history with everything that belongs together joined: requests with
// the calls that made them and the beliefs in them.
type view struct {
	*store
	h       *history.History
	ops     []history.Op
	spans   []history.Span // beliefs in permits, at each level
	granted int64          // permits
	runs    []history.Span // beliefs in runs of jobs
	tries   []history.Span // beliefs in attempts at requests
	strikes []history.Window
	end     int64 // when the last event was recorded
	healthy int64 // when all nemeses were over, or never

	byToken   map[id]*request
	opOf      map[*request]*history.Op
	spanOf    map[*request]*history.Span
	sharers   map[*request][]*history.Span // beliefs of calls that had its key one after the other
	madeBy    map[*history.Op][]*request
	untagged  map[string][]*request    // by gate
	spanOp    map[string]*history.Span // by the tag of the call
	opByTag   map[string]*history.Op
	releases  map[id][]*history.Op
	low       []int64 // by commit: it was made after this time
	lease     map[int64]string
	setters   map[setter]int64             // when a limit was first set so
	takers    map[string][]*history.Op     // by gate: calls that take requests away
	closers   map[string][]*history.Op     // by client
	deaths    map[string][]*history.Op     // by client: ends without a word
	tampering map[string][]*history.Window // by key
	revokers  map[int64][]*history.Window  // by lease
	hasty     []*history.Window            // those that make etcd end leases early
	ttl       int64
	lag       int64
	cacheFor  int64
	back      int64
	early     map[string]bool
}

// id names a permit.
type id struct {
	gate  string
	token int64
}

func join(h *history.History) *view {
	v := &view{
		store: replay(h), h: h, ops: h.Ops(), strikes: h.Nemeses(), healthy: never,
		byToken: map[id]*request{}, opOf: map[*request]*history.Op{}, spanOf: map[*request]*history.Span{}, sharers: map[*request][]*history.Span{},
		madeBy: map[*history.Op][]*request{}, untagged: map[string][]*request{},
		spanOp: map[string]*history.Span{}, opByTag: map[string]*history.Op{}, releases: map[id][]*history.Op{}, lease: map[int64]string{},
		setters: map[setter]int64{}, takers: map[string][]*history.Op{}, closers: map[string][]*history.Op{}, deaths: map[string][]*history.Op{},
		tampering: map[string][]*history.Window{}, revokers: map[int64][]*history.Window{},
		ttl: ttl(h), lag: duration(h, SettingLag, time.Second), cacheFor: duration(h, SettingCacheFor, 10*time.Second), back: duration(h, SettingReturn, 1e9), early: early(h),
	}
	if n := len(h.Events); n > 0 {
		v.end = h.Events[n-1].At
	}
	if marks := h.Marks(history.MarkHealthy); len(marks) > 0 {
		v.healthy = marks[len(marks)-1].At
	}
	tags := v.opByTag
	for _, g := range v.gates {
		for _, r := range g.requests {
			v.byToken[id{g.name, r.token}] = r
		}
	}
	for i := range v.ops {
		op := &v.ops[i]
		tags[history.Tag(op.Call.Client, op.Call.Op)] = op
		for _, e := range []*history.Event{&op.Call, op.Return} {
			if e != nil && e.Lease != 0 && op.Call.Name == history.Open {
				v.lease[e.Lease] = op.Call.Client
			}
		}
		v.index(op)
	}
	for i := range v.strikes {
		n := &v.strikes[i]
		if key := n.Begin.Attr["key"]; key != "" {
			v.tampering[key] = append(v.tampering[key], n)
		}
		if n.Begin.Lease != 0 {
			v.revokers[n.Begin.Lease] = append(v.revokers[n.Begin.Lease], n)
		}
		if v.early[n.Begin.Name] {
			v.hasty = append(v.hasty, n)
		}
	}
	for _, l := range v.leases {
		if l.holder != "" {
			v.lease[l.id] = l.holder
		}
	}
	for _, g := range v.gates {
		for _, r := range g.requests {
			if op := tags[r.rec.Note]; op != nil {
				v.opOf[r] = op
			}
		}
	}
	for _, j := range v.jobs {
		for _, c := range j.claims {
			v.byToken[id{j.name, c.token}] = c.lock
		}
	}
	for _, e := range v.entries {
		for _, a := range e.attempts {
			v.byToken[id{e.name, a.token}] = a.claim
		}
	}
	for _, s := range h.Beliefs() {
		switch {
		case isJob(s.Granted.Gate):
			v.runs = append(v.runs, s)
		case isRequest(s.Granted.Gate):
			v.tries = append(v.tries, s)
		default:
			v.granted++
			v.spans = append(v.spans, v.levels(s)...)
		}
	}
	for _, s := range slices.Concat(pointers(v.spans), pointers(v.runs), pointers(v.tries)) {
		tag := history.Tag(s.Granted.Client, s.Granted.Op)
		v.spanOp[tag] = s
		switch r := v.byToken[id{s.Granted.Gate, s.Granted.Token}]; {
		case r == nil:
		case v.shares(s):
			v.sharers[r] = append(v.sharers[r], s)
		case v.spanOf[r] == nil:
			v.spanOf[r] = s
			if v.opOf[r] == nil {
				v.opOf[r] = tags[tag]
			}
		}
	}
	for _, g := range v.gates {
		for _, r := range g.requests {
			if op := v.opOf[r]; op != nil {
				v.madeBy[op] = append(v.madeBy[op], r)
			} else {
				v.untagged[g.name] = append(v.untagged[g.name], r)
			}
		}
	}
	v.bounds()
	return v
}

func pointers[T any](all []T) (ps []*T) {
	for i := range all {
		ps = append(ps, &all[i])
	}
	return ps
}

// setter names a change of a limit by what its record says. The gate of a default is its limiter.
type setter struct {
	gate, client string
	limit        int64
}

// index files an operation under what is looked for.
func (v *view) index(op *history.Op) {
	c := &op.Call
	switch c.Name {
	case history.Release:
		token := c.Token
		if token == 0 && op.Return != nil {
			token = op.Return.Token // 0: the key serves on
		}
		for _, k := range v.ids(c.Gate, token) {
			v.releases[k] = append(v.releases[k], op)
		}
	case history.SetLimit, history.SetDefault, history.ClearLimit:
		k := setter{c.Gate, c.Client, c.Limit}
		if c.Name == history.ClearLimit {
			k.limit = inherit
		}
		if v.setters[k] == 0 {
			v.setters[k] = c.At
		}
	case history.Close:
		v.closers[c.Client] = append(v.closers[c.Client], op)
	case history.Die:
		v.deaths[c.Client] = append(v.deaths[c.Client], op)
	case history.Evict, history.EvictToken, history.ReleaseID:
		v.takers[c.Gate] = append(v.takers[c.Gate], op)
	case history.Acquire, history.Try:
		if c.Attr["takeover"] != "" {
			v.takers[c.Gate] = append(v.takers[c.Gate], op)
		}
	}
}

// bounds finds, for each revision, a time before which it cannot have been made:
// that of the latest call without which it, or one before it, would not exist.
func (v *view) bounds() {
	after := map[int64]int64{}
	raise := func(rev, at int64) { after[rev] = max(after[rev], at) }
	for _, g := range v.gates {
		for _, r := range g.requests {
			if op := v.opOf[r]; op != nil {
				raise(r.token, op.Call.At)
			}
			// A key that was released existed when its holder last confirmed it.
			if span := v.spanOf[r]; r.how == plain && !v.named(r.key) && span != nil && span.Confirmed && v.released(r) != never {
				raise(r.gone, span.To)
			}
		}
		for _, l := range g.limits {
			// A first record may be that of a call for a permit, but for a key's own.
			if at := v.limitCalled(l); at != never && (!l.first || g.base != nil && l.rev == l.own.rev) {
				raise(l.rev, at)
			}
		}
	}
	for _, j := range v.jobs {
		for _, c := range j.claims {
			if span := v.spanOf[c.lock]; span != nil {
				if start := v.opByTag[history.Tag(span.Granted.Client, span.Granted.Op)]; start != nil && v.opByTag[start.Call.Attr["call"]] != nil {
					raise(c.token, v.opByTag[start.Call.Attr["call"]].Call.At)
				}
			}
		}
	}
	for _, e := range v.entries {
		for _, a := range e.attempts {
			if span := v.spanOf[a.claim]; span != nil {
				if start := v.startOf(span); start != nil && v.opByTag[start.Call.Attr["call"]] != nil {
					raise(a.token, v.opByTag[start.Call.Attr["call"]].Call.At)
				}
				if a.outcome != nil && a.outcome.rec.By == "" {
					raise(a.outcome.rev, v.finished(e.name, a.token))
				}
			}
		}
	}
	v.low = make([]int64, len(v.commits))
	latest := int64(0)
	for i, c := range v.commits {
		latest = max(latest, after[c.Rev])
		v.low[i] = latest
	}
}

// named reports whether any nemesis names a key, whenever.
func (v *view) named(key string) bool { return len(v.tampering[key]) > 0 }

// released returns when the holder first called Release, or never.
func (v *view) released(r *request) int64 {
	at := never
	for _, op := range v.releases[id{r.gate.name, r.token}] {
		at = min(at, op.Call.At)
	}
	return at
}

// limitCalled returns when the change of a limit was called at the earliest, or
// never if no call for it is known.
func (v *view) limitCalled(l limit) int64 {
	at := v.setters[l.set]
	if at == 0 || at > l.at {
		return never
	}
	return at
}

// notBefore returns a time before which a revision cannot have been made.
func (v *view) notBefore(rev int64) int64 {
	i, _ := slices.BinarySearchFunc(v.commits, rev+1, func(c history.Commit, rev int64) int { return cmp.Compare(c.Rev, rev) })
	if i == 0 {
		return 0
	}
	return v.low[i-1]
}

// seen returns when the tap saw a revision.
func (v *view) seen(rev int64) int64 {
	i, found := slices.BinarySearchFunc(v.commits, rev, func(c history.Commit, rev int64) int { return cmp.Compare(c.Rev, rev) })
	if !found {
		return never
	}
	return v.commits[i].At
}

// struck returns the nemesis that may have ended a request, or damaged it: one that
// names its key, its presence key or its lease, or one that makes etcd end leases
// early; and that was at work then. It is nil if there is none.
func (v *view) struck(r *request) *history.Window {
	revs := slices.Clone(r.again)
	if r.gone != never {
		revs = append(revs, r.gone)
	}
	for _, rev := range revs {
		if n := v.tampered(r.key, rev); n != nil {
			return n
		}
	}
	if r.erased {
		return v.hastened(r.gone)
	}
	if r.how != withLease {
		return nil
	}
	ended := r.gone
	if l := v.leases[r.lease]; l != nil && l.gone < ended {
		ended = l.gone
	}
	return v.struckLease(r.lease, ended)
}

// struckLease returns the nemesis that may have ended a lease, or deleted its
// presence key, at a revision.
func (v *view) struckLease(lease, rev int64) *history.Window {
	if v.layout.presence {
		name := fmt.Sprintf("session/%016x/alive", uint64(lease)) //nolint:gosec // leases use all bits
		if n := v.tampered(v.prefix+name, rev); n != nil {
			return n
		}
	}
	for _, n := range v.revokers[lease] {
		if v.atWork(n, rev, 0) {
			return n
		}
	}
	return v.hastened(rev)
}

// hastened returns the nemesis that may have made etcd end any lease early at a revision.
func (v *view) hastened(rev int64) *history.Window {
	for _, n := range v.hasty {
		if v.atWork(n, rev, v.ttl) {
			return n
		}
	}
	return nil
}

// tampered returns the nemesis that may have written or deleted a key at a revision.
func (v *view) tampered(key string, rev int64) *history.Window {
	for _, n := range v.tampering[key] {
		if v.atWork(n, rev, 0) {
			return n
		}
	}
	return nil
}

// atWork reports whether a revision may have been made while a nemesis was at work,
// or so much later.
func (v *view) atWork(n *history.Window, rev, later int64) bool {
	seen := v.seen(rev)
	return n.Begin.At <= seen && addTime(n.End, later) >= max(v.notBefore(rev), seen-v.lag)
}

func addTime(at, d int64) int64 {
	if at > never-d {
		return never
	}
	return at + d
}

// owner returns the client whose request it is, "" if that is not known.
func (v *view) owner(r *request) string {
	if op := v.opOf[r]; op != nil {
		return op.Call.Client
	}
	if r.rec.Owner != "" {
		return r.rec.Owner
	}
	return v.lease[r.lease]
}

// name describes a request for people.
func (v *view) name(r *request) string {
	s := fmt.Sprintf("token %d", r.token)
	if owner := v.owner(r); owner != "" {
		s += " of " + owner
	}
	if op := v.opOf[r]; op != nil {
		s += fmt.Sprintf(" (call %d)", op.Call.Op)
	}
	return s
}
