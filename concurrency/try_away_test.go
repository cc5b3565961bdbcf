package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// T1: etcd is stopped. A try without a deadline in ctx does not wait for it to come back.
func TestTryWhileEtcdIsStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for TryTimeout: 7 s")
	}
	t.Parallel()
	f := own(t, 1)
	s, _ := f.Session(idle())
	sm, mu := sem(t, s, "x", 1), mutex(t, s, "x")
	require.NoError(t, f.Stop(0))
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := sm.Status(brief) // no answer from before is on its way any more: one would show that etcd works
	require.Error(t, err)
	begun := time.Now()
	errs := make(chan error, 2)
	for _, try := range []func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error){sm.TryAcquire, mu.TryLock} {
		go func() {
			_, err := try(context.Background())
			errs <- err
		}()
	}
	for range 2 {
		err := got(t, errs, "the try returns")
		require.ErrorIs(t, err, concurrency.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, f.Endpoints()[0])
	}
	require.GreaterOrEqual(t, time.Since(begun), concurrency.TryTimeout)
}

// T1: etcd falls silent right after it has answered the session. A call whose ctx ends then says that etcd does not
// answer, even if the answer to another request has come while its own was on its way.
func TestSilentRightAfterAnAnswer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, call := range map[string]func(context.Context, *concurrency.Mutex) (*concurrency.Permit, error){
		"TryLock": func(ctx context.Context, m *concurrency.Mutex) (*concurrency.Permit, error) { return m.TryLock(ctx) },
		"Lock":    func(ctx context.Context, m *concurrency.Mutex) (*concurrency.Permit, error) { return m.Lock(ctx) },
		"Wait(0)": func(ctx context.Context, m *concurrency.Mutex) (*concurrency.Permit, error) {
			return m.Lock(ctx, concurrency.Wait(0))
		},
	} {
		for range 8 { // the answers meet the request in some of them
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, c := f.Session(nil)
				m := mutex(t, s, "x")
				c.BlackHole()
				// Of this, etcd has to be silent for the last half a second: answers that have arrived may be read late.
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_, err := call(ctx, m)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, concurrency.ErrUnavailable)
			})
		}
	}
}
