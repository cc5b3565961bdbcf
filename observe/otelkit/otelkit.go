package otelkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdkit/etcdkit/observe"
)

// scope is the instrumentation scope of the meter and the tracer.
const scope = "github.com/etcdkit/etcdkit/observe/otelkit"

// Options configure the hooks. nil means all defaults.
type Options struct {
	// MeterProvider has the instruments. Defaults to OpenTelemetry's global one.
	MeterProvider metric.MeterProvider

	// TracerProvider has the tracer. Defaults to OpenTelemetry's global one.
	TracerProvider trace.TracerProvider

	// MaxNames bounds the values of etcdkit.name in metrics: names that are first seen after so many
	// others are reported as "_other". At least 1. Defaults to 200.
	MaxNames int

	// Attributes are added to all metrics and spans. Defaults to none.
	Attributes []attribute.KeyValue
}

// ErrInvalid: an option is out of range.
var ErrInvalid = errors.New("invalid argument")

// New returns hooks that report to OpenTelemetry. It returns ErrInvalid, or an error of the
// MeterProvider that refuses an instrument. The hooks are safe for concurrent use, and may serve several
// sessions.
func New(opts *Options) (observe.Hooks, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.MaxNames = cmp.Or(o.MaxNames, 200)
	if o.MaxNames < 1 {
		return observe.Hooks{}, fmt.Errorf("otelkit: new hooks: Options.MaxNames %d is below 1: %w", o.MaxNames, ErrInvalid)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	k := &kit{tracer: o.TracerProvider.Tracer(scope), sets: sets{
		common: slices.Clone(o.Attributes), most: o.MaxNames, names: map[string]struct{}{}, built: map[labels]metric.MeasurementOption{},
	}}
	if err := k.instrument(o.MeterProvider.Meter(scope)); err != nil {
		return observe.Hooks{}, fmt.Errorf("otelkit: new hooks: %w", err)
	}
	return observe.Hooks{Start: k.start, Event: k.event}, nil
}

// kit is what the hooks of one New share.
type kit struct {
	tracer trace.Tracer
	sets   sets
	instruments
}

// start begins the span of a call.
func (k *kit) start(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
	begun := time.Now()
	ctx, span := k.tracer.Start(ctx, "etcdkit."+string(c.Op), trace.WithAttributes(k.ofCall(c)...))
	active := k.sets.of(labels{namespace: c.Namespace, kind: c.Kind, name: c.Name, op: c.Op})
	k.active.Add(ctx, 1, active)
	if span.IsRecording() && !isWork(c.Op) {
		ctx = context.WithValue(ctx, linkedKey{}, new(atomic.Bool))
	}
	return ctx, func(o observe.Outcome) {
		k.active.Add(ctx, -1, active)
		k.ended(ctx, c, o)
		describe(span, c, o)
		if isError(o.Result) {
			span.SetStatus(statusError, failure(o))
		}
		if isWork(c.Op) {
			span.End(trace.WithTimestamp(begun.Add(o.Took)))
			return
		}
		span.End()
	}
}

// isWork reports whether an operation ends when its holder has ended the work, which may be before its
// outcome is known.
func isWork(op observe.Op) bool {
	return op == observe.Hold || op == observe.Lead || op == observe.Execute
}

// isError reports whether a result is one that a person should look at.
func isError(r observe.Result) bool {
	return r == observe.Lost || r == observe.Error || r == observe.Failed
}

// failure describes the error of an outcome, for the status of a span.
func failure(o observe.Outcome) string {
	if o.Err != nil {
		return o.Err.Error()
	}
	return string(o.Result) + " " + string(o.Reason)
}
