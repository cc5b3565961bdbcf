package concurrency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A burst of tries that etcd answers slowly is no outage, also for those that had no turn
// within TryTimeout.
func TestTriesWithoutATurn(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes longer than TryTimeout: 10 s")
	}
	t.Parallel()
	f := shared(t)
	s, c := f.Session(idle())
	sm := sem(t, s, "a", 1)
	p := acquire(t, ctxT(t), sm)
	c.Inject(embedtest.Fault{Method: "Range", Times: -1, Do: embedtest.Pass, Before: func() { time.Sleep(300 * time.Millisecond) }})
	const calls = 4000
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := sm.TryAcquire(context.Background())
			errs <- err
		}()
	}
	unseen := 0
	for range calls {
		err := got(t, errs, "a try")
		var away *concurrency.UnavailableError
		if errors.As(err, &away) && time.Since(away.LastAnswer) > 400*time.Millisecond {
			continue // etcd was stopped, as the error says
		}
		require.ErrorIs(t, err, concurrency.ErrFull)
		var full *concurrency.FullError
		if errors.As(err, &full) && full.Used == 0 {
			unseen++
		}
	}
	require.NotZero(t, unseen, "some had no turn")
	require.NoError(t, p.Release(ctxT(t)))
}
