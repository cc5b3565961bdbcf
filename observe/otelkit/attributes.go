package otelkit

import (
	"cmp"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdkit/etcdkit/observe"
)

const statusError = codes.Error

// other stands for the names beyond Options.MaxNames.
const other = "_other"

// labels are the attributes of a metric. The texts of one are few, so each combination is built once.
type labels struct {
	namespace string
	kind      observe.Kind
	name      string
	op        observe.Op
	result    observe.Result
	reason    observe.Reason
	policy    string
}

// sets are the attributes of metrics that were built.
type sets struct {
	common []attribute.KeyValue
	most   int // names

	mu    sync.RWMutex
	names map[string]struct{}
	built map[labels]metric.MeasurementOption
}

// scratch is where the attributes of a span's end are put together: the span copies them.
var scratch = sync.Pool{New: func() any { return new([]attribute.KeyValue) }}

// known returns the name, or other if too many others came before it.
func (s *sets) known(name string) string {
	s.mu.RLock()
	_, ok := s.names[name]
	full := len(s.names) >= s.most
	s.mu.RUnlock()
	switch {
	case ok:
		return name
	case full:
		return other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.names[name]; !ok && len(s.names) >= s.most { // meanwhile
		return other
	}
	s.names[name] = struct{}{}
	return name
}

// of returns the attributes of a metric.
func (s *sets) of(l labels) metric.MeasurementOption {
	if l.kind != "" {
		l.name = s.known(l.name)
	}
	s.mu.RLock()
	built, ok := s.built[l]
	s.mu.RUnlock()
	if ok {
		return built
	}
	all := append(slices.Clone(s.common), attribute.String("etcdkit.namespace", l.namespace))
	for _, more := range []attribute.KeyValue{
		attribute.String("etcdkit.kind", string(l.kind)), attribute.String("etcdkit.name", l.name), attribute.String("etcdkit.op", string(l.op)),
		attribute.String("etcdkit.result", string(l.result)), attribute.String("etcdkit.reason", string(l.reason)), attribute.String("etcdkit.policy", l.policy),
	} {
		if more.Value.AsString() != "" {
			all = append(all, more)
		}
	}
	built = metric.WithAttributeSet(attribute.NewSet(all...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.built[l] = built
	return built
}

// ofCall returns the attributes that a span has from its beginning, for samplers: what the call is for.
func (k *kit) ofCall(c observe.Call) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(k.sets.common)+3)
	return append(append(all, k.sets.common...), attribute.String("etcdkit.namespace", c.Namespace),
		attribute.String("etcdkit.kind", string(c.Kind)), attribute.String("etcdkit.name", c.Name))
}

// describe gives a span its other attributes.
func describe(span trace.Span, c observe.Call, o observe.Outcome) {
	if !span.IsRecording() {
		return
	}
	all := scratch.Get().(*[]attribute.KeyValue)
	text := func(key, value string) {
		if value != "" {
			*all = append(*all, attribute.String(key, value))
		}
	}
	number := func(key string, value int64) {
		if value != 0 {
			*all = append(*all, attribute.Int64(key, value))
		}
	}
	text("etcdkit.key", c.Key)
	text("etcdkit.operation", c.Operation)
	text("etcdkit.scope", c.Scope)
	text("etcdkit.ref", c.Ref)
	number("etcdkit.weight", int64(c.Weight))
	number("etcdkit.token", cmp.Or(o.Token, c.Token))
	number("etcdkit.attempt", int64(cmp.Or(o.Attempt, c.Attempt)))
	tick := o.Tick // which a claim without a fire time knows at its end
	if tick.IsZero() {
		tick = c.Tick
	}
	if !tick.IsZero() {
		text("etcdkit.tick", tick.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	text("etcdkit.result", string(o.Result))
	text("etcdkit.reason", string(o.Reason))
	span.SetAttributes(*all...)
	*all = (*all)[:0]
	scratch.Put(all)
}
