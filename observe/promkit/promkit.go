package promkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/internal/measure"
)

// Options configure the hooks. nil means all defaults.
type Options struct {
	// MaxNames bounds the values of etcdkit_name: names that are first seen after so many others are
	// reported as "_other". At least 1. Defaults to 200.
	MaxNames int

	// Buckets are the upper bounds of the histograms of durations, in seconds, in increasing order. The
	// alerts of docs/observability need 1, 10 and 30. Defaults to 17 bounds from 1 ms to 300 s.
	Buckets []float64
}

// ErrInvalid: an argument or an option is out of range. It is this package's own: concurrency.ErrInvalid is another value.
var ErrInvalid = errors.New("invalid argument")

// New registers the metrics and returns hooks that report to them. If they are registered there already, by an earlier
// New with the same Buckets, both report to the same metrics. New returns ErrInvalid, also if the Buckets differ from
// those of the earlier New, or the Registerer's error if another collector has one of the names. The hooks are safe for
// concurrent use, and may serve several sessions.
func New(reg prometheus.Registerer, opts *Options) (observe.Hooks, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.MaxNames = cmp.Or(o.MaxNames, 200)
	var wrong string
	switch {
	case reg == nil:
		wrong = "the Registerer is nil"
	case o.MaxNames < 1:
		wrong = fmt.Sprintf("Options.MaxNames %d is below 1", o.MaxNames)
	case !increasing(o.Buckets):
		wrong = fmt.Sprintf("Options.Buckets %v do not increase", o.Buckets)
	}
	if wrong != "" {
		return observe.Hooks{}, fmt.Errorf("promkit: new hooks: %s: %w", wrong, ErrInvalid)
	}
	s := sink{}
	for _, i := range measure.All {
		r, err := register(reg, i, o.Buckets)
		if err != nil {
			return observe.Hooks{}, fmt.Errorf("promkit: new hooks: register %s: %w", i.Prometheus(), err)
		}
		s[i] = r
	}
	m := measure.New(o.MaxNames, s.measure)
	return observe.Hooks{
		Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			return ctx, m.Begin(ctx, c)
		},
		Event: m.Event,
	}, nil
}

func increasing(bounds []float64) bool {
	for n := 1; n < len(bounds); n++ {
		if bounds[n] <= bounds[n-1] {
			return false
		}
	}
	return true
}

// record records a value of one metric, with the values of its labels.
type record func(value float64, labels ...string)

// sink is the metrics, by what they measure.
type sink map[*measure.Instrument]record

func (s sink) measure(_ context.Context, i *measure.Instrument, value float64, l measure.Labels) {
	values := make([]string, len(i.Labels))
	for n, label := range i.Labels {
		values[n] = l.Value(label) // an empty one is not published
	}
	s[i](value, values...)
}

// register registers a metric.
func register(reg prometheus.Registerer, i *measure.Instrument, buckets []float64) (record, error) {
	labels := make([]string, len(i.Labels))
	for n, label := range i.Labels {
		labels[n] = label.Prometheus()
	}
	switch i.Type {
	case measure.Counter:
		v, err := registered(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: i.Prometheus(), Help: i.Help}, labels))
		return func(value float64, labels ...string) { v.WithLabelValues(labels...).Add(value) }, err
	case measure.UpDownCounter:
		v, err := registered(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: i.Prometheus(), Help: i.Help}, labels))
		return func(value float64, labels ...string) { v.WithLabelValues(labels...).Add(value) }, err
	case measure.Histogram:
		bounds := slices.Clone(i.Bounds)
		if i.Unit == "s" && buckets != nil {
			bounds = slices.Clone(buckets)
		}
		v, err := registered(reg, histogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: i.Prometheus(), Help: i.Help, Buckets: bounds}, labels), bounds})
		if err == nil && !slices.Equal(v.bounds, bounds) {
			err = fmt.Errorf("an earlier New has registered it with the buckets %v, and Options.Buckets are %v: use the same Buckets, or another Registerer: %w", v.bounds, bounds, ErrInvalid)
		}
		return func(value float64, labels ...string) { v.WithLabelValues(labels...).Observe(value) }, err
	}
	return nil, fmt.Errorf("instrument %s has the type %d", i.Name, i.Type)
}

// histogram is a collector that has the bounds of its buckets: a registry does not compare them.
type histogram struct {
	*prometheus.HistogramVec
	bounds []float64
}

// registered registers a collector, or returns the equal one that is registered.
func registered[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	err := reg.Register(c)
	if before, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := before.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return c, err
}
