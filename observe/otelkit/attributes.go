package otelkit

import (
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"

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

// ofCall returns the attributes of a span when its call begins.
func (k *kit) ofCall(c observe.Call) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, len(k.sets.common)+10), k.sets.common...)
	all = append(all, attribute.String("etcdkit.namespace", c.Namespace),
		attribute.String("etcdkit.kind", string(c.Kind)), attribute.String("etcdkit.name", c.Name))
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String("etcdkit."+key, value))
		}
	}
	number := func(key string, value int64) {
		if value != 0 {
			all = append(all, attribute.Int64("etcdkit."+key, value))
		}
	}
	text("key", c.Key)
	text("operation", c.Operation)
	text("scope", c.Scope)
	text("ref", c.Ref)
	number("weight", int64(c.Weight))
	number("token", c.Token)
	number("attempt", int64(c.Attempt))
	if !c.Tick.IsZero() {
		text("tick", c.Tick.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	return all
}

// ofOutcome returns the attributes of a span when its call ends.
func ofOutcome(o observe.Outcome) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("etcdkit.result", string(o.Result))}
	if o.Reason != "" {
		all = append(all, attribute.String("etcdkit.reason", string(o.Reason)))
	}
	if o.Token != 0 {
		all = append(all, attribute.Int64("etcdkit.token", o.Token))
	}
	if o.Attempt != 0 {
		all = append(all, attribute.Int("etcdkit.attempt", o.Attempt))
	}
	return all
}
