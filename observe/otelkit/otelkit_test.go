package otelkit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// kit is a session whose hooks report to OpenTelemetry's SDK, in memory, and to a recorder.
type kit struct {
	testkit.Fixture
	*testkit.Recorder
	session, other *concurrency.Session
	client         *embedtest.Client
	reader         *sdkmetric.ManualReader
	spans          *tracetest.SpanRecorder
	tracer         trace.Tracer
}

func newKit(t *testing.T, so *concurrency.SessionOptions, o otelkit.Options) kit {
	t.Helper()
	k := kit{Fixture: testkit.Shared(t), Recorder: &testkit.Recorder{}, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(k.spans))
	k.tracer = provider.Tracer("test")
	o.MeterProvider, o.TracerProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(k.reader)), provider
	hooks, err := otelkit.New(&o)
	require.NoError(t, err)
	so.Hooks = append([]observe.Hooks{hooks}, k.Hooks()...) // what the recorder has, the spans have
	k.session, k.client = k.Session(so)
	k.other, _ = k.Session(nil)
	return k
}

func idle() *concurrency.SessionOptions { return &concurrency.SessionOptions{TTL: 300 * time.Second} }

// metrics returns what was recorded, by instrument.
func (k kit) metrics() map[string]metricdata.Aggregation {
	k.T.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(k.T, k.reader.Collect(context.Background(), &all))
	by := map[string]metricdata.Aggregation{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			by[m.Name] = m.Data
		}
	}
	return by
}

// sums returns the values of a counter by one attribute.
func sums(a metricdata.Aggregation, by attribute.Key) map[string]int64 {
	out := map[string]int64{}
	if s, ok := a.(metricdata.Sum[int64]); ok {
		for _, p := range s.DataPoints {
			v, _ := p.Attributes.Value(by)
			out[v.AsString()] += p.Value
		}
	}
	return out
}

func text(set attribute.Set, key attribute.Key) string {
	v, _ := set.Value(key)
	return v.AsString()
}

// Each primitive is driven through outcomes of each kind, and what the recorder's hook, the metrics and the
// spans say of them is the same.
func TestHookMetricsAndSpansAgree(t *testing.T) {
	t.Parallel()
	k := newKit(t, idle(), otelkit.Options{})
	ctx := testkit.Context(t)
	own := errors.New("the function's own")
	sem := func(s *concurrency.Session, name string, limit int) *concurrency.Semaphore {
		sm, err := concurrency.NewSemaphore(s, name, limit, nil)
		require.NoError(t, err)
		return sm
	}
	// A semaphore: granted, refused, gave up, error, lost.
	x, there := sem(k.session, "x", 1), sem(k.other, "x", 1)
	require.NoError(t, x.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
	p, err := there.Acquire(ctx)
	require.NoError(t, err)
	_, err = x.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	_, err = x.Acquire(ctx, concurrency.Wait(time.Second)) // etcd answers within that
	require.ErrorIs(t, err, concurrency.ErrFull)
	_, err = x.Acquire(ctx, concurrency.Weight(2))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.NoError(t, p.Release(ctx))
	p, err = x.Acquire(ctx, concurrency.ID("i"))
	require.NoError(t, err)
	require.NoError(t, there.Evict(ctx, "i", ""))
	testkit.Closed(t, p.Context().Done(), "the eviction")
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrEvicted)
	require.NoError(t, there.SetLimit(ctx, 2))
	require.NoError(t, x.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
	// An election and a limiter.
	el, err := concurrency.NewElection(k.session, "e")
	require.NoError(t, err)
	require.NoError(t, el.Lead(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
	lim, err := concurrency.NewKeyedLimiter(k.session, "llm", 1, nil)
	require.NoError(t, err)
	require.NoError(t, lim.Key("tenant").Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
	// Jobs: done, failed, refused.
	l, err := schedlock.New(k.session, nil)
	require.NoError(t, err)
	at := schedlock.Tick(time.Now().Add(-time.Minute).Truncate(time.Second))
	_, err = l.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return nil }, at)
	require.NoError(t, err)
	_, err = l.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return nil }, at)
	require.NoError(t, err)
	_, err = l.Do(ctx, "other job", func(context.Context, *schedlock.Run) error { return own }, at)
	require.ErrorIs(t, err, own)
	// Requests: done, replayed, failed, mismatch.
	st, err := idempotency.NewStore(k.session, "store", nil)
	require.NoError(t, err)
	key := idempotency.Key{Scope: "tenant", Op: "pay", ID: "secret-id"}
	for range 2 {
		_, err = idempotency.Do(ctx, st, key, "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	_, err = idempotency.Do(ctx, st, key, "other", func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil })
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	key.ID = "secret-too"
	_, err = idempotency.Do(ctx, st, key, "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 0, own })
	require.ErrorIs(t, err, own)
	require.NoError(t, k.session.Close(ctx))
	k.Settled(t)

	word := func(op, kind, name, result, reason string) string {
		return strings.Join([]string{op, kind, name, result, reason}, " ")
	}
	hook, events := map[string]int{}, map[string]int{}
	for _, s := range k.Said("") {
		if s.Event != nil {
			events[s.Text]++
			continue
		}
		hook[word(string(s.Call.Op), string(s.Call.Kind), s.Call.Name, string(s.Outcome.Result), string(s.Outcome.Reason))]++
	}
	require.GreaterOrEqual(t, len(hook), 20, "%v", hook)

	spans := map[string]int{}
	for _, s := range k.spans.Ended() {
		set := attribute.NewSet(s.Attributes()...)
		result := text(set, "etcdkit.result")
		spans[word(strings.TrimPrefix(s.Name(), "etcdkit."), text(set, "etcdkit.kind"), text(set, "etcdkit.name"), result, text(set, "etcdkit.reason"))]++
		wrong := result == "lost" || result == "error" || result == "failed"
		require.Equal(t, wrong, s.Status().Code == codes.Error, "%s: %v", s.Name(), s.Attributes())
		require.NotContains(t, fmt.Sprint(s.Attributes()), "secret")
	}
	require.Equal(t, hook, spans)

	metrics, all := map[string]int{}, k.metrics()
	for name, data := range all {
		h, ok := data.(metricdata.Histogram[float64])
		op, isDuration := strings.CutSuffix(strings.TrimPrefix(name, "etcdkit."), ".duration")
		if !ok || !isDuration || op == "overrun" {
			continue
		}
		for _, p := range h.DataPoints {
			of := op
			if text(p.Attributes, "etcdkit.kind") == "election" {
				of = map[string]string{"acquire": "campaign", "hold": "lead", "release": "release"}[op]
			}
			require.Equal(t, []float64{.001, .0025}, p.Bounds[:2])
			result := text(p.Attributes, "etcdkit.result")
			require.Equal(t, result == "lost" || result == "error" || result == "failed", p.Attributes.HasValue("error.type"), "%v", p.Attributes)
			require.InDelta(t, 300, p.Bounds[len(p.Bounds)-1], 0)
			metrics[word(of, text(p.Attributes, "etcdkit.kind"), text(p.Attributes, "etcdkit.name"), text(p.Attributes, "etcdkit.result"), text(p.Attributes, "etcdkit.reason"))] += int(p.Count)
			for _, many := range []attribute.Key{"etcdkit.key", "etcdkit.ref", "etcdkit.scope", "etcdkit.token"} {
				require.False(t, p.Attributes.HasValue(many), "%s has %s", name, many)
			}
		}
	}
	require.Equal(t, hook, metrics)
	for op, n := range sums(all["etcdkit.active"], "etcdkit.op") {
		require.Zero(t, n, "active %s", op)
	}
	require.Equal(t, map[string]int64{"evicted": int64(events["PermitLost"])}, sums(all["etcdkit.permit.lost"], "etcdkit.reason"))
	require.Equal(t, map[string]int64{"x": int64(events["LimitChanged"])}, sums(all["etcdkit.limit.changes"], "etcdkit.name"))
	require.EqualValues(t, events["Overrun"], all["etcdkit.overrun.duration"].(metricdata.Histogram[float64]).DataPoints[0].Count)
	require.EqualValues(t, 2, count(all["etcdkit.job.delay"]))
	require.EqualValues(t, events["LeaseRenewed"], count(all["etcdkit.session.renewal.age"]))
	require.EqualValues(t, events["LeaseRenewed"], count(all["etcdkit.session.renewal.lateness"]))
}

func count(a metricdata.Aggregation) (n uint64) {
	for _, p := range a.(metricdata.Histogram[float64]).DataPoints {
		n += p.Count
	}
	return n
}

// A lost session and its recovery, and outages, are counted.
func TestSessions(t *testing.T) {
	t.Parallel()
	k := newKit(t, idle(), otelkit.Options{Attributes: []attribute.KeyValue{attribute.String("zone", "a")}})
	require.NoError(t, k.RevokeLease(testkit.Context(t), k.session.Lease()))
	k.Await(t, "", "SessionLost", "SessionRecovered")
	all := k.metrics()
	require.Equal(t, map[string]int64{"test": 1}, sums(all["etcdkit.session.lost"], "etcdkit.namespace"))
	require.Equal(t, map[string]int64{"test": 1}, sums(all["etcdkit.session.recovered"], "etcdkit.namespace"))
	require.Equal(t, map[string]int64{"a": 1}, sums(all["etcdkit.session.recovered"], "zone"))
	require.Equal(t, map[string]int64{"test": 0}, sums(all["etcdkit.session.without_lease"], "etcdkit.namespace"))
}

// A call that waits has a span with the reports, linked to the span of the holder whose note names it. The
// hold's span is the parent of the work's, a sibling of the acquire's, and ends with the work.
func TestSpansOfHolderAndWaiter(t *testing.T) {
	t.Parallel()
	so := idle()
	so.ReportEvery = 10 * time.Millisecond
	k := newKit(t, so, otelkit.Options{})
	caller, root := k.tracer.Start(testkit.Context(t), "caller")
	mu, err := concurrency.NewMutex(k.session, "x")
	require.NoError(t, err)
	p, err := mu.Lock(caller, concurrency.Note(otelkit.Note(caller)+" for a test"))
	require.NoError(t, err)
	_, work := k.tracer.Start(p.Context(), "work")
	work.End()
	waits, cancel := context.WithCancel(testkit.Context(t))
	done := make(chan error, 1)
	go func() { _, err := mu.Lock(waits); done <- err }()
	require.Eventually(t, func() bool {
		reports := 0
		for _, s := range k.Said("x") {
			if s.Text == "Waiting" {
				reports++
			}
		}
		return reports >= 2
	}, testkit.Soon, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, testkit.Got(t, done, "the end of the wait"), context.Canceled)
	require.NoError(t, p.Release(caller))
	root.End()

	by := map[string][]sdktrace.ReadOnlySpan{}
	for _, s := range k.spans.Ended() {
		by[s.Name()] = append(by[s.Name()], s)
	}
	require.ElementsMatch(t, []string{"etcdkit.acquire", "etcdkit.hold", "etcdkit.release", "work", "caller"}, slices.Collect(maps.Keys(by)))
	require.Equal(t, root.SpanContext().SpanID(), by["etcdkit.hold"][0].Parent().SpanID())
	require.Equal(t, root.SpanContext().SpanID(), by["etcdkit.acquire"][0].Parent().SpanID())
	require.Equal(t, by["etcdkit.hold"][0].SpanContext().SpanID(), by["work"][0].Parent().SpanID())
	waiter := by["etcdkit.acquire"][1]
	require.False(t, waiter.Parent().IsValid())
	require.Len(t, waiter.Links(), 1)
	require.Equal(t, root.SpanContext().SpanID(), waiter.Links()[0].SpanContext.SpanID())
	require.Equal(t, "etcdkit.waiting", waiter.Events()[0].Name)
	require.GreaterOrEqual(t, len(waiter.Events()), 2)
}

// A call has one link to the span of a holder, also if etcd has never said when that was renewed.
func TestLinksOnce(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	hooks, err := otelkit.New(&otelkit.Options{TracerProvider: tracer, MeterProvider: sdkmetric.NewMeterProvider()})
	require.NoError(t, err)
	holder, root := tracer.Tracer("test").Start(t.Context(), "holder")
	defer root.End()
	call := observe.Call{Op: observe.Acquire, Name: "x"}
	ctx, end := hooks.Start(t.Context(), call)
	hooks.Event(ctx, observe.Waiting{}) // far behind, nothing is known of the holders
	for range 3 {
		hooks.Event(ctx, observe.Waiting{Blocking: []observe.Holder{{Token: 7, Note: otelkit.Note(holder)}}})
	}
	end(observe.Outcome{})
	require.Len(t, spans.Ended()[0].Links(), 1)
	require.Len(t, spans.Ended()[0].Events(), 4)
}

// Names beyond the bound are one name in metrics. Spans have them.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t, idle(), otelkit.Options{MaxNames: 2})
	for n := range 4 {
		for range 2 {
			mu, err := concurrency.NewMutex(k.session, fmt.Sprint("m", n))
			require.NoError(t, err)
			require.NoError(t, mu.Do(testkit.Context(t), func(context.Context, *concurrency.Permit) error { return nil }))
		}
	}
	got := map[string]uint64{}
	for _, p := range k.metrics()["etcdkit.hold.duration"].(metricdata.Histogram[float64]).DataPoints {
		got[text(p.Attributes, "etcdkit.name")] += p.Count
	}
	require.Equal(t, map[string]uint64{"m0": 2, "m1": 2, "_other": 4}, got)
	_, err := otelkit.New(&otelkit.Options{MaxNames: -1})
	require.ErrorIs(t, err, otelkit.ErrInvalid)
	_, err = otelkit.New(nil)
	require.NoError(t, err)
}
