package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Belief is C2: which holders believed to hold a permit, and when, on the one clock of the
// host. A belief is the time from its grant to its last confirmation; one that was
// never confirmed proves nothing and is left out.
//
// Its rules:
//
//	overlap   at some instant, holders believed in more weight than the limit that
//	          was in force when the last of them was admitted
//	stale     a holder believed in a permit whose key had gone
//	deadline  a permit was reported as held after its own deadline
//	twice     two calls that share a key believed in it at once
//	terminal  a permit that had ended was reported as held again
//
// The exceptions of the promise are excused, and listed with how long they lasted:
// a request that others took away, what a nemesis deleted, overwrote or revoked,
// and leases that etcd ended early because a nemesis made it (SettingEarly).
//
// Without a tap, only fixed limits can be judged, and nothing is excused.
type Belief struct{}

// Name implements Checker.
func (Belief) Name() string { return "belief" }

// check implements Checker.
func (Belief) check(v *view) []Finding {
	return append(v.beliefs(v.spans), v.twice()...)
}

func (v *view) beliefs(spans []history.Span) (f []Finding) {
	byGate := map[string][]*history.Span{}
	for i := range spans {
		s := &spans[i]
		f = append(f, v.ownClock(s)...)
		if s.Confirmed {
			byGate[s.Granted.Gate] = append(byGate[s.Granted.Gate], s)
			f = append(f, v.stale(s)...)
		}
	}
	for name, spans := range byGate {
		f = append(f, v.overlaps(name, spans)...)
	}
	return f
}

// ownClock compares a holder's confirmations with what the holder itself knew.
func (v *view) ownClock(s *history.Span) (f []Finding) {
	if e := s.Ended; e != nil && e.Until > 0 && e.Held > e.Until+slip {
		f = append(f, bad("deadline", s.Granted.Gate, e.Held, "%s: token %d was reported as held %s after its deadline", holder(s), s.Granted.Token, ms(e.Held-e.Until)))
	}
	if len(s.Again) > 0 {
		e := s.Again[0]
		f = append(f, bad("terminal", s.Granted.Gate, e.At, "%s: token %d was reported as held %s after it had ended (%s)", holder(s), s.Granted.Token, ms(e.At-s.Ended.At), s.Ended.Cause))
	}
	return f
}

// stale compares a belief with the life of its key. The tap saw the key's end when
// it had already gone, so what is found is certain.
func (v *view) stale(s *history.Span) []Finding {
	r := v.byToken[id{s.Granted.Gate, s.Granted.Token}]
	if r == nil || s.To <= r.goneAt {
		return nil
	}
	text := fmt.Sprintf("%s held token %d for %s after its key had gone (%s)", holder(s), r.token, ms(s.To-r.goneAt), r.how)
	if why := v.excuse(r); why != "" {
		return []Finding{at(r.gone, excused("stale", s.Granted.Gate, r.goneAt, "%s: %s", text, why))}
	}
	return []Finding{at(r.gone, bad("stale", s.Granted.Gate, r.goneAt, "%s", text))}
}

// excuse returns why a holder may believe in a request that has gone, or "".
func (v *view) excuse(r *request) string {
	if r.how == withNotice {
		return "it was taken away: " + r.notice.Cause
	}
	if n := v.struck(r); n != nil {
		return "nemesis " + n.Begin.Name
	}
	return ""
}

// overlaps sweeps over the beginnings of beliefs: the weight believed in can only
// exceed a limit for the first time when one begins.
func (v *view) overlaps(gate string, spans []*history.Span) (f []Finding) {
	slices.SortStableFunc(spans, func(a, b *history.Span) int { return cmp.Compare(a.From, b.From) })
	var active []*history.Span
	for _, s := range spans {
		active = slices.DeleteFunc(active, func(o *history.Span) bool { return o.To <= s.From })
		active = append(active, s)
		if over := v.over(gate, s.From, active); over != nil {
			f = append(f, *over)
		}
	}
	return f
}

// over judges the beliefs at one instant. They all may, if the limit in
// force when the last of them was admitted has room for them: lowering a limit
// takes nothing back.
func (v *view) over(gate string, now int64, active []*history.Span) *Finding {
	total, last := int64(0), int64(0)
	for _, s := range active {
		total += max(s.Granted.Weight, 1)
		if r := v.byToken[id{gate, s.Granted.Token}]; r != nil {
			last = max(last, r.admitted)
		}
	}
	limit, known := v.limitFor(gate, last)
	if !known || total <= limit {
		return nil
	}
	// One of the keys was gone before the last was admitted.
	rest, overlap := total, never
	var names, excuses []string
	for _, s := range active {
		names = append(names, fmt.Sprintf("%s with token %d", holder(s), s.Granted.Token))
		overlap = min(overlap, s.To-now)
		r := v.byToken[id{gate, s.Granted.Token}]
		if r == nil || r.gone > last {
			continue
		}
		if why := v.excuse(r); why != "" {
			rest -= max(s.Granted.Weight, 1)
			excuses = append(excuses, fmt.Sprintf("token %d: %s", r.token, why))
		}
	}
	finding := bad("overlap", gate, now, "weight %d was held under a limit of %d, for %s at least: %s", total, limit, ms(overlap), strings.Join(names, "; "))
	if rest <= limit {
		finding.Level = Excused
		finding.Text += " (" + strings.Join(excuses, "; ") + ")"
	}
	return &finding
}

// limitFor returns the limit in force at a revision; a fixed one if there is no
// tap.
func (v *view) limitFor(gate string, rev int64) (limit int64, known bool) {
	if fixed := v.layout.fixed(gate); fixed > 0 {
		return fixed, true
	}
	g := v.gates[gate]
	if g == nil || rev == 0 {
		return 0, false
	}
	l := g.limitAt(rev)
	return l.n, l.known
}
