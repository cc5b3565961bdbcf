package otelkit

import (
	"cmp"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/internal/measure"
)

// scratch is where the attributes of a span's end are put together: the span copies them.
var scratch = sync.Pool{New: func() any { return new([]attribute.KeyValue) }}

// ofCall returns the attributes that a span has from its beginning, for samplers: what the call is for.
func (k *kit) ofCall(c observe.Call) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(k.common)+3)
	return append(append(all, k.common...), attribute.String("etcdkit.namespace", c.Namespace),
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
	text("error.type", measure.ErrorTypeOf(o))
	span.SetAttributes(*all...)
	*all = (*all)[:0]
	scratch.Put(all)
}
