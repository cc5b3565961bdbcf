package otelkit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
)

// BenchmarkAcquire acquires and releases a permit in a session without hooks and in one that reports to
// OpenTelemetry's SDK, in turns, and reports the ratio of their times: on an etcd that syncs its writes to
// disk, as one in production does, and on one that does not, where nearly all of the time is that of the
// processor.
func BenchmarkAcquire(b *testing.B) {
	b.Run("fsync", func(b *testing.B) {
		benchmarkAcquire(b, testkit.On(b, embedtest.Start(b, &embedtest.Options{Fsync: true})))
	})
	b.Run("memory", func(b *testing.B) { benchmarkAcquire(b, testkit.Shared(b)) })
}

func benchmarkAcquire(b *testing.B, f testkit.Fixture) {
	hooks, err := otelkit.New(&otelkit.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		TracerProvider: sdktrace.NewTracerProvider(),
	})
	require.NoError(b, err)
	var sems [2]*concurrency.Semaphore
	for i, hooks := range [][]observe.Hooks{nil, {hooks}} {
		s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: hooks})
		sems[i], err = concurrency.NewSemaphore(s, "x"+string(rune('0'+i)), 8, nil)
		require.NoError(b, err)
	}
	ctx := context.Background()
	var took [2]time.Duration
	for b.Loop() {
		for i, sm := range sems {
			begun := time.Now()
			p, err := sm.Acquire(ctx)
			require.NoError(b, err)
			require.NoError(b, p.Release(ctx))
			took[i] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "with/without")
	b.ReportMetric(float64(took[1]-took[0])/float64(b.N)/1000, "µs-more")
}

// BenchmarkCalls reports the three calls of a permit (acquire, hold, release) without etcd.
func BenchmarkCalls(b *testing.B) {
	hooks, err := otelkit.New(&otelkit.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		TracerProvider: sdktrace.NewTracerProvider(),
	})
	require.NoError(b, err)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		for _, op := range []observe.Op{observe.Acquire, observe.Hold, observe.Release} {
			_, end := hooks.Start(ctx, observe.Call{Op: op, Kind: observe.Semaphore, Name: "charge", Namespace: "payments", Weight: 1, Token: 5})
			end(observe.Outcome{Result: observe.Granted, Took: time.Millisecond, Token: 5})
		}
	}
}
