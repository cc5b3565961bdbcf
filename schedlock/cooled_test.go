package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A336: Unlock ends a cooldown after its run has ended, or was lost. A tick that came after that while no process was alive was
// missed, and one that came before was skipped.
func TestOnceAfterACooldownIsUnlocked(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, tt := range map[string]struct {
		lost     bool
		unlocked time.Time
		want     time.Time // or zero for none
	}{
		"before the tick":                {false, friday.Add(time.Hour), saturday},
		"after the tick":                 {false, saturday.Add(30 * time.Minute), time.Time{}},
		"before the tick, after a loss":  {true, friday.Add(time.Hour), saturday},
		"after the tick, and after that": {true, saturday.Add(30 * time.Minute), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			least, most := schedlock.AtLeast(48*time.Hour), schedlock.AtMost(100*time.Hour)
			a := f.instance(nil, clock(friday).options())
			end := make(chan struct{})
			started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(friday), ofNine, schedlock.Retries(1), least, most)
			got(t, started, "it starts")
			if tt.lost {
				a.client.Cut()
				require.NoError(t, f.ExpireLease(ctx, a.sess.Lease()))
			} else {
				close(end)
				got(t, done, "it ends")
				require.NoError(t, a.sess.Close(ctx))
			}
			operator := f.instance(nil, clock(tt.unlocked).options())
			require.NoError(t, operator.Unlock(ctx, "job", "it may start again"))
			rec, err := operator.Get(ctx, "job", friday)
			require.NoError(t, err)
			require.True(t, tt.unlocked.Equal(rec.Cooled), rec.Cooled)
			require.Equal(t, tt.lost, rec.State == schedlock.RunLost)
			require.Zero(t, rec.Token)
			_, starts, reported := f.begins(saturday.Add(time.Hour), least, most)
			res := got(t, reported, "it has looked for what was missed")
			if tt.want.IsZero() {
				require.Equal(t, friday, res.Tick)
				require.Zero(t, starts.Load())
			} else {
				require.Equal(t, []any{schedlock.Ran, tt.want}, []any{res.Outcome, res.Tick})
			}
		})
	}
}

// A336: a loss that was reported is not reported again after Unlock of the cooldown, which writes the record of the run.
func TestCooldownOfALostRunIsUnlocked(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var calls, again lostCalls
	survivor := f.instance(nil, calls.options())
	least := schedlock.AtLeast(time.Hour)
	r := f.dies(ctx, tick(1), least)
	job, err := survivor.Job("job", schedlock.Periods(24*time.Hour), nothing, least)
	require.NoError(t, err)
	job.Next(tick(1))
	require.Eventually(t, func() bool { return f.marked(survivor) }, soon, 20*time.Millisecond)
	require.Len(t, calls.records(), 1)
	require.NoError(t, survivor.Unlock(ctx, "job", "it may start again"))
	rec, err := survivor.Get(ctx, "job", r.Tick)
	require.NoError(t, err)
	require.Equal(t, schedlock.RunLost, rec.State)

	next := f.instance(nil, again.options())
	looked := next.client.Inject(embedtest.Fault{Method: "Txn", Match: looks, Do: embedtest.Pass})
	job, err = next.Job("job", schedlock.Periods(24*time.Hour), nothing, least)
	require.NoError(t, err)
	job.Next(tick(1))
	require.NoError(t, looked.WaitHit(ctx))
	require.NoError(t, next.sess.Close(ctx))
	require.Empty(t, again.records())
}
