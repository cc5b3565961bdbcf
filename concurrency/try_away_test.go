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
