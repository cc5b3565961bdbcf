package measure

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/observe"
)

// Sink receives a measurement: what is added to a counter, or a value of a histogram.
type Sink func(ctx context.Context, i *Instrument, value float64, l Labels)

// Meter makes measurements of calls and events. It is safe for concurrent use, as its sink must be.
type Meter struct {
	sink  Sink
	names names
}

// New returns a meter of so many names at most: those that come later are one, "_other".
func New(maxNames int, sink Sink) *Meter {
	return &Meter{sink: sink, names: names{most: maxNames, seen: map[string]struct{}{}}}
}

// Begin measures the beginning of a call, and returns the function that measures its end. ctx is that of the sink.
func (m *Meter) Begin(ctx context.Context, c observe.Call) func(observe.Outcome) {
	of := m.named(c)
	begun := of
	begun.Op = c.Op
	m.sink(ctx, active, 1, begun)
	return func(o observe.Outcome) {
		m.sink(ctx, active, -1, begun)
		if c.Op == observe.Claim && c.Every == 0 && o.Result == observe.Granted { // a period has no time that a call could miss
			m.sink(ctx, jobDelay, max(0, time.Since(o.Tick).Seconds()), of)
		}
		if d := durations[c.Op]; d != nil {
			of.Result, of.Reason, of.ErrorType = o.Result, o.Reason, ErrorTypeOf(o)
			m.sink(ctx, d, o.Took.Seconds(), of)
		}
	}
}

// named returns the labels of a call's namespace, kind and name.
func (m *Meter) named(c observe.Call) Labels {
	return Labels{Namespace: c.Namespace, Kind: c.Kind, Name: m.names.known(c.Name)}
}

// Event measures an event.
func (m *Meter) Event(ctx context.Context, e observe.Event) {
	switch e := e.(type) {
	case observe.PermitLost:
		of := m.named(e.Call)
		of.Reason = e.Reason
		m.sink(ctx, permitsLost, 1, of)
	case observe.Overrun:
		of := m.named(e.Call)
		of.Op = e.Op
		m.sink(ctx, overrun, e.For.Seconds(), of)
	case observe.LimitChanged:
		m.sink(ctx, limitSet, 1, m.named(observe.Call{Namespace: e.Namespace, Kind: e.Kind, Name: e.Name}))
	case observe.RateCalls:
		of := m.named(observe.Call{Namespace: e.Namespace, Kind: observe.Rate, Name: e.Name})
		of.Result, of.Reason = e.Result, e.Reason
		m.sink(ctx, rateCalls, float64(e.Count), of)
	case observe.OutagePolicy:
		of := m.named(observe.Call{Namespace: e.Namespace, Kind: e.Kind, Name: e.Name})
		of.Policy = e.Policy
		m.sink(ctx, outages, sign(e.Active), of)
	case observe.Unclaimed:
		m.sink(ctx, unclaimed, 1, m.named(e.Call))
	case observe.HookPanicked:
		m.sink(ctx, panics, 1, Labels{Namespace: e.Namespace})
	default:
		m.session(ctx, e)
	}
}

// session measures an event of a session.
func (m *Meter) session(ctx context.Context, e observe.Event) {
	switch e := e.(type) {
	case observe.SessionLost:
		m.sink(ctx, lost, 1, Labels{Namespace: e.Namespace})
		m.sink(ctx, without, 1, Labels{Namespace: e.Namespace})
	case observe.SessionRecovered:
		m.sink(ctx, recovered, 1, Labels{Namespace: e.Namespace})
		m.sink(ctx, without, -1, Labels{Namespace: e.Namespace})
	case observe.SessionClosed:
		if e.Lost {
			m.sink(ctx, without, -1, Labels{Namespace: e.Namespace})
		}
	case observe.LeaseRenewed:
		of := Labels{Namespace: e.Namespace}
		for _, i := range []*Instrument{lost, recovered, without, panics} {
			m.sink(ctx, i, 0, of) // a counter that begins with 1 has not increased, for Prometheus
		}
		m.sink(ctx, renewal, e.Age.Seconds(), of)
		m.sink(ctx, lateness, e.Age.Seconds()/e.TTL.Seconds(), of)
	}
}

func sign(up bool) float64 {
	if up {
		return 1
	}
	return -1
}
