package otelkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/etcdkit/etcdkit/observe/internal/measure"
)

// record records a value of one instrument.
type record func(ctx context.Context, value float64, of metric.MeasurementOption)

// sink is the instruments of one meter. The values of labels are few, so the attributes of each combination are built
// once.
type sink struct {
	common  []attribute.KeyValue
	records map[*measure.Instrument]record

	mu    sync.RWMutex
	built map[measure.Labels]metric.MeasurementOption
}

// newSink makes the instruments.
func newSink(m metric.Meter, common []attribute.KeyValue) (*sink, error) {
	s := &sink{common: slices.Clone(common), records: map[*measure.Instrument]record{}, built: map[measure.Labels]metric.MeasurementOption{}}
	var errs []error
	for _, i := range measure.All {
		r, err := newRecord(m, i)
		s.records[i] = r
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

func newRecord(m metric.Meter, i *measure.Instrument) (record, error) {
	unit, text := metric.WithUnit(i.Unit), metric.WithDescription(i.Help)
	switch i.Type {
	case measure.Counter:
		c, err := m.Int64Counter(i.Name, unit, text)
		return func(ctx context.Context, v float64, of metric.MeasurementOption) { c.Add(ctx, int64(v), of) }, err
	case measure.UpDownCounter:
		c, err := m.Int64UpDownCounter(i.Name, unit, text)
		return func(ctx context.Context, v float64, of metric.MeasurementOption) { c.Add(ctx, int64(v), of) }, err
	case measure.Histogram:
		h, err := m.Float64Histogram(i.Name, unit, text, metric.WithExplicitBucketBoundaries(i.Bounds...))
		return func(ctx context.Context, v float64, of metric.MeasurementOption) { h.Record(ctx, v, of) }, err
	}
	return nil, fmt.Errorf("instrument %s has the type %d", i.Name, i.Type)
}

func (s *sink) measure(ctx context.Context, i *measure.Instrument, value float64, l measure.Labels) {
	s.records[i](ctx, value, s.of(i, l))
}

// of returns the attributes of a measurement.
func (s *sink) of(i *measure.Instrument, l measure.Labels) metric.MeasurementOption {
	s.mu.RLock()
	built, ok := s.built[l]
	s.mu.RUnlock()
	if ok {
		return built
	}
	all := slices.Clone(s.common)
	for _, label := range i.Labels {
		if v := l.Value(label); v != "" {
			all = append(all, attribute.String(string(label), v))
		}
	}
	built = metric.WithAttributeSet(attribute.NewSet(all...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.built[l] = built
	return built
}
