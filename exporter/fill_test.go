package exporter_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// own starts an etcd of the test's own.
func own(t testing.TB) testkit.Fixture { return testkit.Own(t, 1) }

// fill leaves something of each kind in etcd: names with numbers for what may be a label, and the word
// secret in what must not be one.
func fill(t testing.TB, f fixture, s *concurrency.Session) {
	t.Helper()
	ctx := ctxT(t)
	for i := range 3 {
		sm, err := concurrency.NewSemaphore(s, fmt.Sprint("sem", i), 1, nil)
		require.NoError(t, err)
		acquire(t, ctx, sm, concurrency.ID(fmt.Sprint("secret-id", i)), concurrency.Note("secret-note"))
		f.ask(ctx, sm)
	}
	mu, err := concurrency.NewMutex(s, "mutex")
	require.NoError(t, err)
	_, err = mu.Lock(ctx)
	require.NoError(t, err)
	lim, err := concurrency.NewKeyedLimiter(s, "limiter", 1, &concurrency.KeyedLimiterOptions{Total: 10})
	require.NoError(t, err)
	for i := range 3 {
		acquire(t, ctx, lim.Key(fmt.Sprint("secret-tenant", i)))
	}
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	for i := range 3 {
		_, err := l.Do(ctx, "job", nothing, schedlock.Tick(time.Now().Add(time.Duration(i)*time.Second-time.Hour)))
		require.NoError(t, err)
	}
	require.NoError(t, l.Pause(ctx, "job", "secret reason"))
	for _, store := range []string{"payments", "refunds"} {
		st, err := idempotency.NewStore(s, store, nil)
		require.NoError(t, err)
		for i := range 3 {
			_, err := idempotency.Do(ctx, st, idempotency.Key{Scope: "secret-scope", Op: "secret-op", ID: fmt.Sprint("secret", i)}, "payload",
				func(context.Context, *idempotency.Attempt) (string, error) { return "secret result", nil })
			require.NoError(t, err)
		}
	}
}

// same asserts that two exporters show the same state of the namespace, but for what they measure.
func same(t testing.TB, want, got map[string]float64) {
	t.Helper()
	kept := func(series map[string]float64) map[string]float64 {
		out := maps.Clone(series)
		maps.DeleteFunc(out, func(name string, _ float64) bool {
			return strings.HasPrefix(name, "exporter_") || strings.Contains(name, "clock_skew_") || strings.HasPrefix(name, "oldest_")
		})
		return out
	}
	require.Greater(t, len(kept(want)), 30)
	require.Equal(t, kept(want), kept(got))
}

// hasEvents matches responses of a watch that have events.
func hasEvents(_ string, msg any) bool {
	resp, ok := msg.(*pb.WatchResponse)
	return ok && len(resp.Events) > 0
}

// hasEventsOf matches responses of a watch that have events of keys with a prefix.
func hasEventsOf(prefix string) func(string, any) bool {
	return func(_ string, msg any) bool {
		resp, ok := msg.(*pb.WatchResponse)
		return ok && slices.ContainsFunc(resp.Events, func(ev *mvccpb.Event) bool { return strings.HasPrefix(string(ev.Kv.Key), prefix) })
	}
}

// hit returns a channel that is closed when a fault has struck.
func hit(t testing.TB, inj *embedtest.Injection) <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		if inj.WaitHit(ctxT(t)) == nil {
			close(ch)
		}
	}()
	return ch
}
