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
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdkit/etcdkit/internal/build"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/internal/measure"
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

// ErrInvalid: an option is out of range. It is this package's own: concurrency.ErrInvalid is another value.
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
	version := build.Current().Etcdkit
	sink, err := newSink(o.MeterProvider.Meter(scope, metric.WithInstrumentationVersion(version)), o.Attributes)
	if err != nil {
		return observe.Hooks{}, fmt.Errorf("otelkit: new hooks: %w", err)
	}
	k := &kit{
		tracer: o.TracerProvider.Tracer(scope, trace.WithInstrumentationVersion(version)),
		common: slices.Clone(o.Attributes), meter: measure.New(o.MaxNames, sink.measure),
	}
	return observe.Hooks{Start: k.start, Event: k.event}, nil
}

// kit is what the hooks of one New share.
type kit struct {
	tracer trace.Tracer
	common []attribute.KeyValue
	meter  *measure.Meter
}

// start begins the span of a call.
func (k *kit) start(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
	begun := time.Now()
	ctx, span := k.tracer.Start(ctx, "etcdkit."+string(c.Op), trace.WithAttributes(k.ofCall(c)...))
	end := k.meter.Begin(ctx, c)
	if span.IsRecording() && !isWork(c.Op) {
		ctx = context.WithValue(ctx, linkedKey{}, new(atomic.Bool))
	}
	return ctx, func(o observe.Outcome) {
		end(o)
		describe(span, c, o)
		if measure.IsError(o.Result) {
			span.SetStatus(codes.Error, failure(o))
		}
		if isWork(c.Op) {
			span.End(trace.WithTimestamp(begun.Add(o.Took)))
			return
		}
		span.End()
	}
}

// event records an event.
func (k *kit) event(ctx context.Context, e observe.Event) {
	if w, ok := e.(observe.Waiting); ok {
		waits(ctx, w)
		return
	}
	k.meter.Event(ctx, e)
}

// isWork reports whether an operation ends when its holder has ended the work, which may be before its
// outcome is known.
func isWork(op observe.Op) bool {
	return op == observe.Hold || op == observe.Lead || op == observe.Execute
}

// failure describes the error of an outcome, for the status of a span.
func failure(o observe.Outcome) string {
	if o.Err != nil {
		return o.Err.Error()
	}
	return string(o.Result) + " " + string(o.Reason)
}
