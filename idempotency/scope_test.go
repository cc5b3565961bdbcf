package idempotency_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A full scope refuses new requests, and nothing else: requests that have a record continue, and so do
// other scopes.
func TestScopeFull(t *testing.T) {
	t.Parallel()
	f := shared(t)
	opts := &idempotency.Options{MaxPerScope: 5, Retain: time.Hour, CacheBytes: -1}
	a, b := f.instance(nil, opts), f.instance(nil, opts)
	full := func(in instance, id string, opts ...idempotency.Option) {
		t.Helper()
		var scope *idempotency.ScopeFullError
		_, _, err := in.Begin(ctxT(t), key(id), "payload", opts...)
		require.ErrorIs(t, err, idempotency.ErrScopeFull)
		require.NotErrorIs(t, err, idempotency.ErrNearQuota)
		require.NotErrorIs(t, err, idempotency.ErrUnseen, "a middleware would fail open")
		require.ErrorAs(t, err, &scope)
		require.Equal(t, idempotency.ScopeFullError{Key: key(id), Max: 5, RetryAfter: 12 * time.Minute}, *scope)
		require.ErrorContains(t, err, `"tenant"/"pay"`)
		require.ErrorContains(t, err, "Options.MaxPerScope is 5")
	}
	require.NoError(t, begin(t, a, key("done")).Commit(ctxT(t), []byte("x")))
	begin(t, a, key("lost"))
	busy, released := begin(t, a, key("busy")), []*idempotency.Attempt{begin(t, a, key("released")), begin(t, a, key("released too"))}
	idempotency.ForgetCounts(a.Store)
	full(a, "new")
	full(b, "new", idempotency.LikelyNew())
	_, _, err := b.Begin(ctxT(t), idempotency.Key{Scope: "other", Op: "pay", ID: "new"}, "payload")
	require.NoError(t, err)

	for _, opts := range [][]idempotency.Option{nil, {idempotency.LikelyNew()}} {
		at, rec, err := b.Begin(ctxT(t), key("done"), "payload", opts...)
		require.NoError(t, err)
		require.Nil(t, at)
		require.Equal(t, "x", string(rec.Value))
		_, _, err = b.Begin(ctxT(t), key("done"), "another", opts...)
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		_, _, err = b.Begin(ctxT(t), key("busy"), "payload", append(opts, idempotency.Wait(0))...)
		require.ErrorIs(t, err, idempotency.ErrInProgress)
	}
	require.NoError(t, busy.Commit(ctxT(t), nil))
	for _, at := range released {
		require.NoError(t, at.Release(ctxT(t)))
	}
	a.crash(t, f)
	idempotency.ForgetCounts(b.Store)
	for _, id := range []string{"more", "yet more"} {
		require.NoError(t, begin(t, b, key(id)).Commit(ctxT(t), nil))
	}
	full(b, "new")
	at := begin(t, b, key("lost"))
	require.Equal(t, 2, at.Attempt())
	full(b, "new")
	require.NoError(t, at.Release(ctxT(t)))
	idempotency.ForgetCounts(b.Store)
	at = begin(t, b, key("new"))
	full(b, "newer")
	require.NoError(t, at.Commit(ctxT(t), nil))
	require.EqualValues(t, 4, b.Stats().ScopeFull)

}

// What other processes begin meanwhile may exceed the bound: here, by no more than once.
func TestScopeFullAtOnce(t *testing.T) {
	t.Parallel()
	const most, calls = 20, 8
	f := shared(t)
	opts := &idempotency.Options{MaxPerScope: most, NearQuota: 2}
	fleet := []instance{f.instance(nil, opts), f.instance(nil, opts)}
	var begun, refused, next atomic.Int64
	var wg sync.WaitGroup
	for n := range calls {
		wg.Go(func() {
			for refused.Load() == 0 || next.Load() < 2*most {
				_, err := idempotency.Do(ctxT(t), fleet[n%2].Store, key(fmt.Sprint(next.Add(1))), nil, func(context.Context, *idempotency.Attempt) (int, error) {
					begun.Add(1)
					return 0, nil
				})
				if err != nil {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	n, err := fleet[0].CountScope(ctxT(t), "tenant")
	require.NoError(t, err)
	require.Equal(t, begun.Load(), n)
	require.LessOrEqual(t, n, int64(len(fleet)*most))
	require.GreaterOrEqual(t, n, int64(most))
	require.NotZero(t, refused.Load())
}

// The count is a read like others: what etcd refuses for a moment is asked again, and what it
// does not answer is known to have begun nothing.
func TestScopeFullAndFaults(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{MaxPerScope: 3, NearQuota: 2})
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), nil))
	idempotency.ForgetCounts(a.Store)
	a.client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldRequest, Times: -1})
	short, cancel := context.WithTimeout(ctxT(t), 200*time.Millisecond)
	defer cancel()
	_, _, err := a.Begin(short, key("2"), nil, idempotency.LikelyNew())
	require.ErrorIs(t, err, idempotency.ErrUnseen)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// BenchmarkMaxPerScope shows what the count costs a new request, by the records of its scope.
func BenchmarkMaxPerScope(b *testing.B) {
	for _, records := range []int{100, 1000, 10_000, 100_000} {
		f := durable(b)
		fill := f.instance(nil, &idempotency.Options{CacheBytes: -1, NearQuota: 2})
		var wg sync.WaitGroup
		var next atomic.Int64
		for range 512 {
			wg.Go(func() {
				for n := next.Add(1); n <= int64(records); n = next.Add(1) {
					if _, err := idempotency.Do(context.Background(), fill.Store, key(fmt.Sprint(n)), nil, func(context.Context, *idempotency.Attempt) (int, error) { return 0, nil }); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		of := map[int]instance{}
		for _, most := range []int{0, 1 << 30} {
			of[most] = f.instance(nil, &idempotency.Options{MaxPerScope: most, CacheBytes: -1, NearQuota: 2})
		}
		b.Run(fmt.Sprint(records, " records"), func(b *testing.B) {
			took := map[int][]time.Duration{}
			for n := range b.N {
				for most, in := range of {
					begun := time.Now()
					at, _, err := in.Begin(context.Background(), key(fmt.Sprint("new", most, "/", b.N, "/", n)), nil)
					if err != nil {
						b.Fatal(err)
					}
					took[most] = append(took[most], time.Since(begun))
					if err := at.Release(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			}
			for most, name := range map[int]string{0: "without-µs", 1 << 30: "with-µs"} {
				slices.Sort(took[most])
				b.ReportMetric(float64(took[most][len(took[most])/2].Microseconds()), name)
			}
		})
	}
}
