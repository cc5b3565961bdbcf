package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A run's context ends with the cause: ErrReturned if its function has returned. Deadline is the earlier of
// AtMost's end and the trust in the lease.
func TestCauseAndDeadline(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute}, nil)
	var run *schedlock.Run
	_, err := a.Do(ctx, "returns", func(_ context.Context, r *schedlock.Run) error {
		run = r
		require.WithinRange(t, r.Deadline(), time.Now(), time.Now().Add(time.Minute), "trust")
		require.NoError(t, r.Extend(10*time.Second))
		require.WithinRange(t, r.Deadline(), time.Now(), time.Now().Add(10*time.Second), "AtMost")
		return nil
	}, schedlock.Tick(tick(1)), schedlock.AtMost(time.Hour))
	require.NoError(t, err)
	require.ErrorIs(t, run.Err(), schedlock.ErrReturned)
	require.ErrorIs(t, context.Cause(run.Context()), schedlock.ErrReturned)
	_, err = a.Do(ctx, "late", func(_ context.Context, r *schedlock.Run) error {
		<-r.Context().Done()
		require.ErrorIs(t, context.Cause(r.Context()), schedlock.ErrTooLong)
		return r.Err()
	}, schedlock.Tick(tick(1)), schedlock.AtMost(50*time.Millisecond))
	require.ErrorIs(t, err, schedlock.ErrTooLong)
}
