package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Verdict is what a run shows.
type Verdict string

// The verdicts, from the worst to the best.
const (
	Red          Verdict = "red"          // a rule was broken
	Inconclusive Verdict = "inconclusive" // it is unknown
	Void         Verdict = "void"         // nothing was broken, but too little was tried
	Green        Verdict = "green"
)

// Report is a verdict with its reasons.
type Report struct {
	Verdict  Verdict
	Findings []Finding        // the worst first
	Effects  map[string]int64 // what happened, and how often
	Missing  []string         // required effects that did not happen often enough
	Events   int
}

// Names of effects that are counted from the history itself, besides the counters
// that a harness records.
const (
	EffectGrants    = "grants"
	EffectExpiries  = "expiries"        // leases that ended, not by Close and not revoked by a nemesis
	EffectEvictions = "evictions"       // requests taken away, with a notice
	EffectUnknown   = "unknown results" // calls that change something, and effects, whose answer was lost
	EffectLimits    = "limit changes"
	EffectStarts    = "job starts"
	EffectRetries   = "second attempts" // at a tick whose run was lost
	EffectTokens    = "tokens of rates"
	EffectAttempts  = "attempts at requests"
	EffectReplays   = "replays of requests"
	EffectShared    = "shared keys" // grants of a key that had served another call of the process
	EffectExcused   = "excused"     // findings that are documented exceptions
)

// Judge runs the checkers on a history, and adds what the run has found itself, as
// checker "end".
func Judge(h *history.History, checkers ...Checker) *Report {
	r, v := &Report{Events: len(h.Events)}, join(h)
	for _, c := range checkers {
		for _, f := range c.check(v) {
			f.Checker = c.Name()
			r.Findings = append(r.Findings, f)
		}
	}
	r.Findings = sorted(append(r.Findings, own(h)...))
	r.Effects = effects(v)
	for _, f := range r.Findings {
		if f.Level == Excused {
			r.Effects[EffectExcused]++
		}
	}
	for name, most := range numbers(h, ToleratePrefix) {
		if n := r.Effects[name]; n > most {
			f := unclear("tolerate", "", "%d %s, more than the %d that are tolerated", n, name, most)
			f.Checker = "effects"
			r.Findings = sorted(append(r.Findings, f))
		}
	}
	for name, least := range numbers(h, RequirePrefix) {
		if n := r.Effects[name]; n < least {
			r.Missing = append(r.Missing, fmt.Sprintf("%s: %d, at least %d are required", name, n, least))
		}
	}
	slices.Sort(r.Missing)
	r.Verdict = r.verdict()
	return r
}

// own returns what the run has found itself.
func own(h *history.History) (f []Finding) {
	for _, e := range h.Events {
		if e.Kind != history.KindFinding {
			continue
		}
		level := Bad
		if e.Cause == history.Doubt {
			level = Unclear
		}
		f = append(f, Finding{Level: level, Checker: "end", Rule: e.Name, At: e.At, Text: e.Error})
	}
	return f
}

func (r *Report) verdict() Verdict {
	worst := Excused
	for _, f := range r.Findings {
		if f.Rule == "tap" && f.Level == Unclear {
			return Inconclusive // what looks bad may be what the tap has missed
		}
		worst = max(worst, f.Level)
	}
	switch {
	case worst == Bad:
		return Red
	case worst == Unclear:
		return Inconclusive
	case len(r.Missing) > 0:
		return Void
	}
	return Green
}

// Killers returns the names of the checkers and rules that say that a rule is
// broken, as "checker/rule".
func (r *Report) Killers() []string {
	names := map[string]bool{}
	for _, f := range r.Findings {
		if f.Level == Bad {
			names[f.Checker+"/"+f.Rule] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// effects counts what happened.
func effects(v *view) map[string]int64 {
	n := v.h.Counts()
	delete(n, CountStall) // these are times
	delete(n, CountSlow)
	n[EffectGrants] += v.granted
	n[EffectStarts] += int64(len(v.runs))
	n[EffectAttempts] += int64(len(v.tries))
	for _, op := range v.ops {
		switch op.Call.Name {
		case history.JobStart:
			if op.Call.N > 1 {
				n[EffectRetries]++
			}
		case history.RateTake:
			if op.Outcome() == history.OK {
				n[EffectTokens]++
			}
		case history.RequestDo:
			if op.Return != nil && op.Return.Cause == history.Replayed {
				n[EffectReplays]++
			}
		case history.Acquire, history.Try, history.Status: // their context may have ended while they waited
		default:
			if op.Return != nil && op.Return.Outcome == history.Unknown {
				n[EffectUnknown]++
			}
		}
	}
	for _, e := range v.h.Events {
		if e.Kind == history.KindEffect && e.Outcome == history.Unknown {
			n[EffectUnknown]++
		}
	}
	for _, g := range v.gates {
		n[EffectLimits] += int64(len(g.limits))
		for _, r := range g.requests {
			if r.how == withNotice {
				n[EffectEvictions]++
			}
			n[EffectShared] += int64(max(len(v.sharers[r])-1, 0))
		}
	}
	for _, l := range v.leases {
		if l.gone != never && !v.endedOnPurpose(l) {
			n[EffectExpiries]++
		}
	}
	return n
}

// endedOnPurpose reports whether a lease was revoked by its session's Close or by a
// nemesis.
func (v *view) endedOnPurpose(l *lease) bool {
	if n := v.struckLease(l.id, l.gone); n != nil && !v.early[n.Begin.Name] {
		return true
	}
	for _, op := range v.closers[v.lease[l.id]] {
		if c := &op.Call; c.At <= l.goneAt && (c.Lease == 0 || c.Lease == l.id) {
			return true
		}
	}
	return false
}

// most is how many findings of one level, checker and rule are printed.
const most = 5

// String returns the verdict and its reasons.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d events", strings.ToUpper(string(r.Verdict)), r.Events)
	for _, name := range slices.Sorted(maps.Keys(r.Effects)) {
		fmt.Fprintf(&b, ", %s %d", name, r.Effects[name])
	}
	b.WriteByte('\n')
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "  missing: %s\n", m)
	}
	type kind struct {
		level         Level
		checker, rule string
	}
	printed, order := map[kind]int{}, []kind{}
	for _, f := range r.Findings {
		k := kind{f.Level, f.Checker, f.Rule}
		if printed[k]++; printed[k] <= most {
			fmt.Fprintf(&b, "  %s\n", f)
		} else if printed[k] == most+1 {
			order = append(order, k)
		}
	}
	for _, k := range order {
		fmt.Fprintf(&b, "  %s: %s/%s: %d more\n", k.level, k.checker, k.rule, printed[k]-most)
	}
	return b.String()
}
