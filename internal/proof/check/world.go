package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// world is a history with everything that belongs together joined: requests with
// the calls that made them and the beliefs in them.
type world struct {
	*store
	h       *history.History
	ops     []history.Op
	spans   []history.Span // beliefs in permits
	runs    []history.Span // beliefs in runs of jobs
	tries   []history.Span // beliefs in attempts at requests
	strikes []history.Window
	end     int64 // when the last event was recorded
	healthy int64 // when all nemeses were over, or never

	byToken  map[id]*request
	opOf     map[*request]*history.Op
	spanOf   map[*request]*history.Span
	madeBy   map[*history.Op][]*request
	untagged map[string][]*request    // by gate
	spanOp   map[string]*history.Span // by the tag of the call
	opByTag  map[string]*history.Op
	releases map[id][]*history.Op
	low      []int64 // by commit: it was made after this time
	lease    map[int64]string
	setters  map[setter]int64             // when a limit was first set so
	takers   map[string][]*history.Op     // by gate: calls that take requests away
	closers  map[string][]*history.Op     // by client
	deaths   map[string][]*history.Op     // by client: ends without a word
	meddlers map[string][]*history.Window // by key
	revokers map[int64][]*history.Window  // by lease
	hasty    []*history.Window            // those that make etcd end leases early
	ttl      int64
	lag      int64
	early    map[string]bool
}

// id names a permit.
type id struct {
	gate  string
	token int64
}

func join(h *history.History) *world {
	w := &world{
		store: replay(h), h: h, ops: h.Ops(), strikes: h.Nemeses(), healthy: never,
		byToken: map[id]*request{}, opOf: map[*request]*history.Op{}, spanOf: map[*request]*history.Span{},
		madeBy: map[*history.Op][]*request{}, untagged: map[string][]*request{},
		spanOp: map[string]*history.Span{}, opByTag: map[string]*history.Op{}, releases: map[id][]*history.Op{}, lease: map[int64]string{},
		setters: map[setter]int64{}, takers: map[string][]*history.Op{}, closers: map[string][]*history.Op{}, deaths: map[string][]*history.Op{},
		meddlers: map[string][]*history.Window{}, revokers: map[int64][]*history.Window{},
		ttl: ttl(h), lag: duration(h, SettingLag, time.Second), early: early(h),
	}
	if n := len(h.Events); n > 0 {
		w.end = h.Events[n-1].At
	}
	if marks := h.Marks(history.MarkHealthy); len(marks) > 0 {
		w.healthy = marks[len(marks)-1].At
	}
	tags := w.opByTag
	for i := range w.ops {
		op := &w.ops[i]
		tags[history.Tag(op.Call.Client, op.Call.Op)] = op
		for _, e := range []*history.Event{&op.Call, op.Return} {
			if e != nil && e.Lease != 0 && op.Call.Name == history.Open {
				w.lease[e.Lease] = op.Call.Client
			}
		}
		w.index(op)
	}
	for i := range w.strikes {
		n := &w.strikes[i]
		if key := n.Begin.Attr["key"]; key != "" {
			w.meddlers[key] = append(w.meddlers[key], n)
		}
		if n.Begin.Lease != 0 {
			w.revokers[n.Begin.Lease] = append(w.revokers[n.Begin.Lease], n)
		}
		if w.early[n.Begin.Name] {
			w.hasty = append(w.hasty, n)
		}
	}
	for _, l := range w.leases {
		if l.holder != "" {
			w.lease[l.id] = l.holder
		}
	}
	for _, g := range w.gates {
		for _, r := range g.requests {
			w.byToken[id{g.name, r.token}] = r
			if op := tags[r.rec.Note]; op != nil {
				w.opOf[r] = op
			}
		}
	}
	for _, j := range w.jobs {
		for _, c := range j.claims {
			w.byToken[id{j.name, c.token}] = c.lock
		}
	}
	for _, e := range w.entries {
		for _, a := range e.attempts {
			w.byToken[id{e.name, a.token}] = a.claim
		}
	}
	for _, s := range h.Beliefs() {
		switch {
		case isJob(s.Granted.Gate):
			w.runs = append(w.runs, s)
		case isRequest(s.Granted.Gate):
			w.tries = append(w.tries, s)
		default:
			w.spans = append(w.spans, s)
		}
	}
	for _, s := range slices.Concat(pointers(w.spans), pointers(w.runs), pointers(w.tries)) {
		tag := history.Tag(s.Granted.Client, s.Granted.Op)
		w.spanOp[tag] = s
		if r := w.byToken[id{s.Granted.Gate, s.Granted.Token}]; r != nil && w.spanOf[r] == nil {
			w.spanOf[r] = s
			if w.opOf[r] == nil {
				w.opOf[r] = tags[tag]
			}
		}
	}
	for _, g := range w.gates {
		for _, r := range g.requests {
			if op := w.opOf[r]; op != nil {
				w.madeBy[op] = append(w.madeBy[op], r)
			} else {
				w.untagged[g.name] = append(w.untagged[g.name], r)
			}
		}
	}
	w.bounds()
	return w
}

func pointers[T any](all []T) (ps []*T) {
	for i := range all {
		ps = append(ps, &all[i])
	}
	return ps
}

// setter names a change of a limit by what its record tells of it.
type setter struct {
	gate, client string
	limit        int64
}

// index files an operation under what is looked for.
func (w *world) index(op *history.Op) {
	c := &op.Call
	switch c.Name {
	case history.Release:
		k := id{c.Gate, c.Token}
		w.releases[k] = append(w.releases[k], op)
	case history.SetLimit:
		if k := (setter{c.Gate, c.Client, c.Limit}); w.setters[k] == 0 {
			w.setters[k] = c.At
		}
	case history.Close:
		w.closers[c.Client] = append(w.closers[c.Client], op)
	case history.Die:
		w.deaths[c.Client] = append(w.deaths[c.Client], op)
	case history.Evict, history.EvictToken, history.ReleaseID:
		w.takers[c.Gate] = append(w.takers[c.Gate], op)
	case history.Acquire, history.Try:
		if c.Attr["takeover"] != "" {
			w.takers[c.Gate] = append(w.takers[c.Gate], op)
		}
	}
}

// bounds finds, for each revision, a time before which it cannot have been made:
// that of the latest call without which it, or one before it, would not exist.
func (w *world) bounds() {
	after := map[int64]int64{}
	raise := func(rev, at int64) { after[rev] = max(after[rev], at) }
	for _, g := range w.gates {
		for _, r := range g.requests {
			if op := w.opOf[r]; op != nil {
				raise(r.token, op.Call.At)
			}
			// A key that was released stood when its holder last confirmed it.
			if span := w.spanOf[r]; r.how == plain && !w.named(r.key) && span != nil && span.Confirmed && w.released(r) != never {
				raise(r.gone, span.To)
			}
		}
		for _, l := range g.limits {
			if at := w.limitCalled(g, l); at != never && !l.first {
				raise(l.rev, at)
			}
		}
	}
	for _, j := range w.jobs {
		for _, c := range j.claims {
			if span := w.spanOf[c.lock]; span != nil {
				if start := w.opByTag[history.Tag(span.Granted.Client, span.Granted.Op)]; start != nil && w.opByTag[start.Call.Attr["call"]] != nil {
					raise(c.token, w.opByTag[start.Call.Attr["call"]].Call.At)
				}
			}
		}
	}
	for _, e := range w.entries {
		for _, a := range e.attempts {
			if span := w.spanOf[a.claim]; span != nil {
				if start := w.startOf(span); start != nil && w.opByTag[start.Call.Attr["call"]] != nil {
					raise(a.token, w.opByTag[start.Call.Attr["call"]].Call.At)
				}
				if a.outcome != nil && a.outcome.rec.By == "" {
					raise(a.outcome.rev, w.finished(e.name, a.token))
				}
			}
		}
	}
	w.low = make([]int64, len(w.commits))
	latest := int64(0)
	for i, c := range w.commits {
		latest = max(latest, after[c.Rev])
		w.low[i] = latest
	}
}

// named tells whether any nemesis names a key, whenever.
func (w *world) named(key string) bool { return len(w.meddlers[key]) > 0 }

// released returns when the holder first called Release, or never.
func (w *world) released(r *request) int64 {
	at := never
	for _, op := range w.releases[id{r.gate.name, r.token}] {
		at = min(at, op.Call.At)
	}
	return at
}

// limitCalled returns when the change of a limit was called at the earliest, or
// never if no call for it is known.
func (w *world) limitCalled(g *gate, l limit) int64 {
	at := w.setters[setter{g.name, l.by, l.n}]
	if at == 0 || at > l.at {
		return never
	}
	return at
}

// notBefore returns a time before which a revision cannot have been made.
func (w *world) notBefore(rev int64) int64 {
	i, _ := slices.BinarySearchFunc(w.commits, rev+1, func(c history.Commit, rev int64) int { return cmp.Compare(c.Rev, rev) })
	if i == 0 {
		return 0
	}
	return w.low[i-1]
}

// seen returns when the tap saw a revision.
func (w *world) seen(rev int64) int64 {
	i, found := slices.BinarySearchFunc(w.commits, rev, func(c history.Commit, rev int64) int { return cmp.Compare(c.Rev, rev) })
	if !found {
		return never
	}
	return w.commits[i].At
}

// struck returns the nemesis that may have ended a request, or damaged it: one that
// names its key, its presence key or its lease, or one that makes etcd end leases
// early; and that was at work then. It is nil if there is none.
func (w *world) struck(r *request) *history.Window {
	revs := slices.Clone(r.again)
	if r.gone != never {
		revs = append(revs, r.gone)
	}
	for _, rev := range revs {
		if n := w.meddled(r.key, rev); n != nil {
			return n
		}
	}
	if r.how != withLease {
		return nil
	}
	ended := r.gone
	if l := w.leases[r.lease]; l != nil && l.gone < ended {
		ended = l.gone
	}
	return w.struckLease(r.lease, ended)
}

// struckLease returns the nemesis that may have ended a lease, or deleted its
// presence key, at a revision.
func (w *world) struckLease(lease, rev int64) *history.Window {
	if w.layout.presence {
		name := fmt.Sprintf("session/%016x/alive", uint64(lease)) //nolint:gosec // leases use all bits
		if n := w.meddled(w.prefix+name, rev); n != nil {
			return n
		}
	}
	for _, n := range w.revokers[lease] {
		if w.atWork(n, rev, 0) {
			return n
		}
	}
	return w.hastened(rev)
}

// hastened returns the nemesis that may have made etcd end any lease early at a revision.
func (w *world) hastened(rev int64) *history.Window {
	for _, n := range w.hasty {
		if w.atWork(n, rev, w.ttl) {
			return n
		}
	}
	return nil
}

// meddled returns the nemesis that may have written or deleted a key at a revision.
func (w *world) meddled(key string, rev int64) *history.Window {
	for _, n := range w.meddlers[key] {
		if w.atWork(n, rev, 0) {
			return n
		}
	}
	return nil
}

// atWork tells whether a revision may have been made while a nemesis was at work,
// or so much later.
func (w *world) atWork(n *history.Window, rev, later int64) bool {
	seen := w.seen(rev)
	return n.Begin.At <= seen && addTime(n.End, later) >= max(w.notBefore(rev), seen-w.lag)
}

func addTime(at, d int64) int64 {
	if at > never-d {
		return never
	}
	return at + d
}

// owner returns the client whose request it is, "" if that is not known.
func (w *world) owner(r *request) string {
	if op := w.opOf[r]; op != nil {
		return op.Call.Client
	}
	if r.rec.Holder != "" {
		return r.rec.Holder
	}
	return w.lease[r.lease]
}

// name describes a request for people.
func (w *world) name(r *request) string {
	s := fmt.Sprintf("token %d", r.token)
	if owner := w.owner(r); owner != "" {
		s += " of " + owner
	}
	if op := w.opOf[r]; op != nil {
		s += fmt.Sprintf(" (call %d)", op.Call.Op)
	}
	return s
}
