package check

import (
	"fmt"
	"slices"
	"time"
)

// Span is the time within which something was decided, such as that a call may proceed: at one moment
// if both ends are the same.
type Span struct{ From, To time.Time }

// Rate returns an error if, in any window of time, more was certainly decided than a rate with a
// burst allows: perSecond × window + burst. What may have been decided before or after a window is
// not counted in it. The time that it takes is of the order of len(spans)², and of len(spans) if all
// of them are moments.
func Rate(spans []Span, perSecond float64, burst int) error {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	if !slices.ContainsFunc(spans, func(s Span) bool { return s.From != s.To }) {
		return moments(spans, perSecond, burst)
	}
	var ends []time.Time // of the spans that begin in the window, in order
	for i := len(spans) - 1; i >= 0; i-- {
		at, _ := slices.BinarySearchFunc(ends, spans[i].To, time.Time.Compare)
		ends = slices.Insert(ends, at, spans[i].To)
		for n, end := range ends {
			if err := exceeds(spans[i].From, end, n+1, perSecond, burst); err != nil {
				return err
			}
		}
	}
	return nil
}

// moments is Rate for spans that are moments, in order: a bucket that leaks.
func moments(spans []Span, perSecond float64, burst int) error {
	level, first := 0.0, 0 // the window that is the fullest so far begins with first
	for i, s := range spans {
		if i > 0 {
			level -= perSecond * s.From.Sub(spans[i-1].From).Seconds()
		}
		if level <= 0 {
			level, first = 0, i
		}
		if level++; level > float64(burst)+1e-6 {
			return exceeds(spans[first].From, s.From, i-first+1, perSecond, burst)
		}
	}
	return nil
}

func exceeds(from, to time.Time, n int, perSecond float64, burst int) error {
	if window := to.Sub(from); float64(n) > perSecond*window.Seconds()+float64(burst)+1e-6 {
		return fmt.Errorf("%d in %v from %s on: more than %v per second and a burst of %d", n, window, from.Format(time.RFC3339Nano), perSecond, burst)
	}
	return nil
}
