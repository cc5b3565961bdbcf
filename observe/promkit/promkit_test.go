package promkit_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
	"github.com/etcdkit/etcdkit/observe/promkit"
)

// drive calls hooks for each operation with each result, and for each event.
func drive(ctx context.Context, hooks observe.Hooks) {
	for n, op := range []observe.Op{observe.Acquire, observe.Hold, observe.Release, observe.Campaign, observe.Lead, observe.Claim, observe.Run, observe.Begin, observe.Execute, observe.Record} {
		for _, o := range []observe.Outcome{
			{Result: observe.Granted, Tick: time.Now().Add(time.Hour)}, {Result: observe.Refused, Reason: observe.Full}, {Result: observe.Lost, Reason: observe.SessionEnded}, {Result: observe.Failed},
		} {
			o.Took = time.Duration(n) * 100 * time.Millisecond
			_, end := hooks.Start(ctx, observe.Call{Op: op, Kind: observe.Job, Name: fmt.Sprint("x", n%3), Namespace: "ns"})
			end(o)
		}
		hooks.Start(ctx, observe.Call{Op: op, Kind: observe.Job, Name: "open", Namespace: "ns"}) // it does not end
	}
	call := observe.Call{Op: observe.Hold, Kind: observe.Semaphore, Name: "x1", Namespace: "ns"}
	for _, e := range []observe.Event{
		observe.Waiting{Call: call}, observe.PermitLost{Call: call, Reason: observe.Evicted}, observe.Overrun{Call: call, For: 2 * time.Second},
		observe.LeaseRenewed{Namespace: "ns", Age: time.Second, TTL: 3 * time.Second},
		observe.SessionLost{Namespace: "ns"}, observe.SessionRecovered{Namespace: "ns"}, observe.SessionLost{Namespace: "ns"},
		observe.SessionClosed{Namespace: "ns", Lost: true}, observe.SessionClosed{Namespace: "ns"},
		observe.SessionLost{Namespace: "ns"},
		observe.LimitChanged{Namespace: "ns", Kind: observe.Semaphore, Name: "x1"},
		observe.RateCalls{Namespace: "ns", Name: "mail", Result: observe.Granted, Count: 5},
		observe.RateCalls{Namespace: "ns", Name: "mail", Result: observe.Refused, Reason: observe.Exceeded, Count: 3},
		observe.OutagePolicy{Namespace: "ns", Kind: observe.Limiter, Name: "api", Policy: "open", Active: true},
		observe.OutagePolicy{Namespace: "ns", Kind: observe.Limiter, Name: "api", Policy: "closed", Active: true},
		observe.OutagePolicy{Namespace: "ns", Kind: observe.Limiter, Name: "api", Policy: "closed"},
		observe.Unclaimed{Call: observe.Call{Op: observe.Execute, Kind: observe.Store, Name: "payments", Namespace: "ns"}},
		observe.HookPanicked{Namespace: "ns"},
	} {
		hooks.Event(ctx, e)
	}
}

// published returns all series of a registry with their values: of a histogram its count, sum and buckets.
func published(t *testing.T, reg prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" { // Prometheus does not distinguish an empty one from none
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			slices.Sort(labels)
			value := fmt.Sprint(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			if f.GetType() == dto.MetricType_HISTOGRAM {
				h := m.GetHistogram()
				value = fmt.Sprintf("%d %.3f", h.GetSampleCount(), h.GetSampleSum())
				for _, b := range h.GetBucket() {
					value += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
				}
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"} "+f.GetHelp()] = value
		}
	}
	return out
}

// translated returns what OpenTelemetry's SDK has, by the rules of its exporter for Prometheus: dots become underscores,
// seconds and counters get a suffix.
func translated(t *testing.T, reader sdkmetric.Reader) map[string]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	out := map[string]string{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		series := func(name string, set attribute.Set) string {
			var labels []string
			for _, kv := range set.ToSlice() {
				labels = append(labels, fmt.Sprintf("%s=%q", strings.ReplaceAll(string(kv.Key), ".", "_"), kv.Value.AsString()))
			}
			slices.Sort(labels)
			return name + "{" + strings.Join(labels, ",") + "} " + m.Description
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			if data.IsMonotonic {
				name += "_total"
			}
			for _, p := range data.DataPoints {
				out[series(name, p.Attributes)] = fmt.Sprint(p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				value, sum := fmt.Sprintf("%d %.3f", p.Count, p.Sum), uint64(0)
				for n, bound := range p.Bounds {
					sum += p.BucketCounts[n]
					value += fmt.Sprintf(" %v:%d", bound, sum)
				}
				out[series(name, p.Attributes)] = value
			}
		default:
			t.Fatalf("%s is a %T", m.Name, data)
		}
	}
	return out
}

// The same calls and events make the same series, with the same values, help and buckets, as otelkit's.
func TestSameAsOtelkit(t *testing.T) {
	t.Parallel()
	reg, reader := prometheus.NewPedanticRegistry(), sdkmetric.NewManualReader()
	ours, err := promkit.New(reg, &promkit.Options{MaxNames: 5})
	require.NoError(t, err)
	theirs, err := otelkit.New(&otelkit.Options{MaxNames: 5, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), TracerProvider: sdktrace.NewTracerProvider()})
	require.NoError(t, err)
	drive(t.Context(), ours)
	drive(t.Context(), theirs)
	got := published(t, reg)
	require.Greater(t, len(got), 50)
	require.Equal(t, translated(t, reader), got)
	require.Contains(t, strings.Join(slices.Collect(maps.Keys(got)), "\n"), `etcdkit_name="_other"`)
	require.Contains(t, strings.Join(slices.Collect(maps.Keys(got)), "\n"), `error_type="session"`)
}

// The package's comment lists each metric.
func TestDocListsAllMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	hooks, err := promkit.New(reg, nil)
	require.NoError(t, err)
	drive(t.Context(), hooks)
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	listed := regexp.MustCompile(`\betcdkit_\w+`).FindAllString(string(doc), -1)
	families, err := reg.Gather()
	require.NoError(t, err)
	var all []string
	for _, f := range families {
		all = append(all, f.GetName())
	}
	slices.Sort(listed)
	require.Equal(t, all, listed)
}

// A permit of one name is 63 series, as the comments of both packages and the page say.
func TestSeries(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	hooks, err := promkit.New(reg, nil)
	require.NoError(t, err)
	f := testkit.Shared(t)
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: []observe.Hooks{hooks}})
	sem, err := concurrency.NewSemaphore(s, "charge", 1, nil)
	require.NoError(t, err)
	require.NoError(t, sem.Do(testkit.Context(t), func(context.Context, *concurrency.Permit) error { return nil }))
	series := 0
	for name, value := range published(t, reg) {
		switch {
		case !strings.Contains(name, `etcdkit_name="charge"`):
		case strings.Contains(name, "_duration_seconds{"):
			series += strings.Count(value, ":") + len([]string{"+Inf", "sum", "count"})
		default:
			series++
		}
	}
	require.Equal(t, 63, series)
}

// What is out of range is refused. Hooks that are made again report to the same metrics.
func TestNew(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	for want, opts := range map[string]*promkit.Options{
		"Options.MaxNames -1 is below 1":         {MaxNames: -1},
		"Options.Buckets [1 1] do not increase":  {Buckets: []float64{1, 1}},
		"Options.Buckets [10 1] do not increase": {Buckets: []float64{10, 1}},
	} {
		_, err := promkit.New(reg, opts)
		require.ErrorIs(t, err, promkit.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	_, err := promkit.New(nil, nil)
	require.ErrorIs(t, err, promkit.ErrInvalid)
	for range 2 {
		hooks, err := promkit.New(reg, &promkit.Options{Buckets: []float64{1, 10, 30}})
		require.NoError(t, err)
		_, end := hooks.Start(t.Context(), observe.Call{Op: observe.Release, Kind: observe.Mutex, Name: "m", Namespace: "ns"})
		end(observe.Outcome{Result: observe.Released, Took: 5 * time.Second})
	}
	require.Equal(t, "2 10.000 1:0 10:2 30:2",
		published(t, reg)[`etcdkit_release_duration_seconds{etcdkit_kind="mutex",etcdkit_name="m",etcdkit_namespace="ns",etcdkit_result="released"} Time of calls that release a permit.`])
	for _, opts := range []*promkit.Options{nil, {Buckets: []float64{1, 10}}} {
		_, err = promkit.New(reg, opts)
		require.ErrorIs(t, err, promkit.ErrInvalid)
		require.ErrorContains(t, err, "promkit: new hooks: register etcdkit_acquire_duration_seconds: an earlier New has registered it with the buckets [1 10 30], and Options.Buckets are [")
	}
	clusters := prometheus.NewPedanticRegistry()
	for _, cluster := range []string{"eu", "us", "us"} {
		_, err = promkit.New(prometheus.WrapRegistererWith(prometheus.Labels{"etcdkit_cluster": cluster}, clusters), nil)
		require.NoError(t, err, "two etcd clusters in one process")
	}
	other := prometheus.NewPedanticRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcdkit_active", Help: "Another one."}))
	_, err = promkit.New(other, nil)
	require.ErrorContains(t, err, "register etcdkit_active: ")
}
