package schedlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Calls with ticks by clocks that are seconds apart start once; one that comes Apart later starts.
func TestApart(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var starts atomic.Int32
	count := func(context.Context, *schedlock.Run) error { starts.Add(1); return nil }
	var wg sync.WaitGroup
	for i := range 6 {
		in := f.instance(&concurrency.SessionOptions{Owner: fmt.Sprint("host ", i)}, nil)
		wg.Go(func() {
			res, err := in.Do(ctx, "backup", count, schedlock.Tick(tick(i)), schedlock.Apart(time.Minute))
			if err != nil || res.Outcome != schedlock.Ran && res.Outcome != schedlock.Claimed && res.Outcome != schedlock.Late && res.Outcome != schedlock.StillRunning {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, starts.Load())

	in := f.instance(&concurrency.SessionOptions{Owner: "the next day"}, nil)
	h, err := in.History(ctx, "backup")
	require.NoError(t, err)
	require.Len(t, h, 1)
	for after, want := range map[time.Duration]schedlock.Outcome{time.Minute - time.Millisecond: schedlock.Claimed, time.Millisecond: schedlock.Claimed} {
		res, err := in.Do(ctx, "backup", count, schedlock.Tick(h[0].Tick.Add(after)), schedlock.Apart(time.Minute))
		require.NoError(t, err)
		require.Equal(t, want, res.Outcome, after)
		require.Equal(t, h[0].Owner, res.Owner)
	}
	res, err := in.Do(ctx, "backup", count, schedlock.Tick(h[0].Tick.Add(time.Minute)), schedlock.Apart(time.Minute))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	_, err = in.Do(ctx, "backup", count, schedlock.Tick(tick(0)), schedlock.Apart(0))
	require.ErrorIs(t, err, schedlock.ErrInvalid)
}

// A lost run keeps other ticks away as well; its own tick may be tried again.
func TestApartFromALostRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	dies, lives := f.instance(nil, nil), f.instance(nil, nil)
	begun, done := do(ctx, dies.Locker, "backup", nil, schedlock.Tick(tick(0)))
	got(t, begun, "it runs")
	require.NoError(t, f.RevokeLease(ctx, dies.sess.Lease()))
	require.ErrorIs(t, got(t, done, "it is lost").err, schedlock.ErrLost)
	res, err := lives.Do(ctx, "backup", nothing, schedlock.Tick(tick(1)), schedlock.Apart(time.Minute), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.Claimed, res.Outcome)
	res, err = lives.Do(ctx, "backup", nothing, schedlock.Tick(tick(0)), schedlock.Apart(time.Minute), schedlock.Retries(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.Equal(t, 2, res.Attempt)
}
