package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Op is a call with its return, if it has returned.
type Op struct {
	Call   Event
	Return *Event
}

// Ended returns when the call returned, or the greatest time if it never did.
func (o Op) Ended() int64 {
	if o.Return == nil {
		return never
	}
	return o.Return.At
}

// Outcome returns how the call ended for its caller; of one that never returned
// it is Unknown.
func (o Op) Outcome() Outcome {
	if o.Return == nil {
		return Unknown
	}
	return o.Return.Outcome
}

const never = math.MaxInt64

// Ops returns all operations, in the order of their calls.
func (h *History) Ops() []Op {
	var ops []Op
	index := map[string]int{}
	for i, e := range h.Events {
		switch e.Kind {
		case KindCall:
			index[Tag(e.Client, e.Op)] = len(ops)
			ops = append(ops, Op{Call: e})
		case KindReturn:
			if at, ok := index[Tag(e.Client, e.Op)]; ok && ops[at].Return == nil {
				ops[at].Return = &h.Events[i]
			}
		}
	}
	return ops
}

// Span is the time in which a holder believed that it had a permit.
type Span struct {
	Granted Event  // client, gate, weight and token
	Ended   *Event // nil if it was never recorded
	From    int64  // when the holder learned that it has the permit
	To      int64  // when that was last confirmed, From if it never was
	// Confirmed says whether it was. If not, the holder may have learned late,
	// and From proves nothing.
	Confirmed bool
	// Until is the deadline that was known with the last confirmation, or 0.
	Until int64
	// Again has confirmations that came after the end.
	Again []Event
}

// Beliefs returns all beliefs, in the order of their grants. One without an end
// lasts until it was last seen confirmed.
func (h *History) Beliefs() []Span {
	var spans []Span
	index := map[string]int{}
	for i, e := range h.Events {
		switch e.Kind {
		case KindGranted:
			index[Tag(e.Client, e.Op)] = len(spans)
			spans = append(spans, Span{Granted: e, From: e.At, To: e.At})
		case KindHeld, KindEnded:
			at, ok := index[Tag(e.Client, e.Op)]
			if !ok {
				continue
			}
			s := &spans[at]
			switch {
			case e.Kind == KindEnded && s.Ended == nil:
				s.Ended = &h.Events[i]
				s.To, s.Confirmed = max(s.To, e.Held), s.Confirmed || e.Held > 0
			case e.Kind == KindHeld && s.Ended != nil:
				s.Again = append(s.Again, e)
			case e.Kind == KindHeld:
				s.To, s.Confirmed, s.Until = max(s.To, e.At), true, e.Until
			}
		}
	}
	return spans
}

// Window is a nemesis at work.
type Window struct {
	Begin Event
	End   int64 // when it was over, or the greatest time
}

// Nemeses returns all nemeses, in the order in which they began.
func (h *History) Nemeses() []Window {
	var windows []Window
	index := map[string]int{}
	for _, e := range h.Events {
		switch e.Kind {
		case KindBegin:
			index[Tag(e.Client, e.Op)] = len(windows)
			windows = append(windows, Window{Begin: e, End: never})
		case KindFinish:
			if at, ok := index[Tag(e.Client, e.Op)]; ok {
				windows[at].End = e.At
			}
		}
	}
	return windows
}

// Commit is what one revision of etcd changed below the tapped prefix.
type Commit struct {
	Rev    int64
	At     int64 // when the tap first saw it or a later one: it was committed before
	Listed bool  // it existed when the tap began
	Events []Event
}

// Commits returns what the tap saw, in the order of revisions.
func (h *History) Commits() []Commit {
	var events []Event
	for _, e := range h.Events {
		if (e.Kind == KindPut || e.Kind == KindDelete) && e.KV != nil {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Rev, b.Rev) })
	var commits []Commit
	for _, e := range events {
		if len(commits) == 0 || commits[len(commits)-1].Rev != e.Rev {
			commits = append(commits, Commit{Rev: e.Rev, At: e.At, Listed: e.Attr["listed"] != ""})
		}
		last := &commits[len(commits)-1]
		last.At = min(last.At, e.At)
		last.Events = append(last.Events, e)
	}
	for i := len(commits) - 2; i >= 0; i-- {
		commits[i].At = min(commits[i].At, commits[i+1].At)
	}
	return commits
}

// Setting returns the value of a setting, the last one if it was set again.
func (h *History) Setting(name string) (value string) {
	for _, e := range h.Events {
		if e.Kind == KindSet && e.Name == name {
			value = e.Attr["value"]
		}
	}
	return value
}

// Settings returns all settings whose names begin with prefix, by the rest of the
// name.
func (h *History) Settings(prefix string) map[string]string {
	values := map[string]string{}
	for _, e := range h.Events {
		if rest, ok := strings.CutPrefix(e.Name, prefix); ok && e.Kind == KindSet {
			values[rest] = e.Attr["value"]
		}
	}
	return values
}

// Marks returns the marks of that name, in the order of time.
func (h *History) Marks(name string) (marks []Event) {
	for _, e := range h.Events {
		if e.Kind == KindMark && e.Name == name {
			marks = append(marks, e)
		}
	}
	return marks
}

// Counts sums up the counters.
func (h *History) Counts() map[string]int64 {
	sums := map[string]int64{}
	for _, e := range h.Events {
		if e.Kind == KindCount {
			sums[e.Name] += e.N
		}
	}
	return sums
}
