package schedlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A process starts with a job while it cannot reach etcd. Meanwhile another one runs saturday's tick past
// sunday's fire time, which is skipped by that and not missed. What the first process reads when etcd
// answers again is bounded by the time of that read, not by that of its first try.
func TestOnceAfterAnOutageOfItsStart(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	a := f.instance(nil, h.options())
	least, most := schedlock.AtLeast(0), schedlock.AtMost(100*time.Hour)
	saturday, sunday := friday.AddDate(0, 0, 1), friday.AddDate(0, 0, 2)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(friday), ofNine, schedlock.Retries(1), least, most)
	require.NoError(t, err)

	hb := clock(friday.Add(time.Hour))
	o := hb.options()
	reported := make(chan schedlock.Result, 10)
	o.Done = func(r schedlock.Result, _ error) { reported <- r }
	b := f.instance(nil, o)
	var looks atomic.Int64
	inj := b.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1, Match: func(string, any) bool { looks.Add(1); return true }})
	var starts atomic.Int64
	job, err := b.Job("job", nine{}, counted(&starts), least, most, schedlock.OnMisfire(schedlock.Once), schedlock.Retries(1))
	require.NoError(t, err)
	job.Next(friday.Add(time.Hour))
	require.Eventually(t, func() bool { return looks.Load() > 1 }, soon, 20*time.Millisecond, "it looks")

	h.set(saturday)
	_, err = a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { h.set(sunday.Add(time.Minute)); return nil },
		schedlock.Tick(saturday), ofNine, schedlock.Retries(1), least, most)
	require.NoError(t, err)
	hb.set(sunday.Add(time.Hour))
	inj.Remove()
	res := got(t, reported, "it has looked for what was missed")
	require.Zero(t, starts.Load(), "sunday's tick was skipped, not missed: %v %v", res.Tick, res.Outcome)
}
