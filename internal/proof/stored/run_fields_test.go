package stored

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/audit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// theRest writes the fields that the other parts of the full run do not write, under names of its own.
func theRest(t *testing.T, f testkit.Fixture, web, operator *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	lim, err := concurrency.NewKeyedLimiter(web, "inherited", 2, nil)
	require.NoError(t, err)
	require.NoError(t, lim.Key("tenant-9").SetLimit(ctx, 1, concurrency.CreateLimit()))
	require.NoError(t, lim.ClearLimit(ctx, "tenant-9"))
	raised, err := concurrency.NewRateLimiter(web, "raised", concurrency.Rate{PerSecond: 20, Burst: 1}, nil)
	require.NoError(t, err)
	for _, burst := range []int{1, 3} {
		require.NoError(t, raised.SetRate(ctx, concurrency.Rate{PerSecond: 20, Burst: burst}, concurrency.CreateLimit()))
	}
	_, err = f.Client().Delete(ctx, f.Root+"v1/test/rate/raised/limit") // by hand: it is stored again
	require.NoError(t, err)
	require.NoError(t, raised.Wait(ctx))
	failedRuns(t, web)
	unlockedRuns(t, f, web, operator)
	plans(t, f, operator)
	resolved(t, web, operator)
	sealed(t, web)
	trail(t, operator)
}

// jobsOf is a Locker of a session, with the clock of the full run.
func jobsOf(t *testing.T, sess *concurrency.Session) *schedlock.Locker {
	t.Helper()
	lk, err := schedlock.New(sess, &schedlock.Options{Now: func() time.Time { return friday.Add(time.Hour) }})
	require.NoError(t, err)
	return lk
}

// failedRuns has a run that failed twice, and one that has exceeded its time.
func failedRuns(t *testing.T, web *concurrency.Session) {
	t.Helper()
	ctx, lk := testkit.Context(t), jobsOf(t, web)
	_, err := lk.Do(ctx, "fails", func(context.Context, *schedlock.Run) error { return errors.New("the disk is full") },
		schedlock.Tick(friday), schedlock.RetryFailed(1, time.Millisecond))
	require.Error(t, err)
	_, err = lk.Do(ctx, "too-long", func(ctx context.Context, _ *schedlock.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, schedlock.Tick(friday), schedlock.AtMost(time.Millisecond))
	require.Error(t, err)
}

// unlockedRuns has a run that an operator has ended, and one that was lost and whose cooldown an operator has ended.
func unlockedRuns(t *testing.T, f testkit.Fixture, web, operator *concurrency.Session) {
	t.Helper()
	ctx, lk, control := testkit.Context(t), jobsOf(t, web), jobsOf(t, operator)
	_, err := lk.Do(ctx, "hangs", func(run context.Context, _ *schedlock.Run) error {
		require.NoError(t, control.Unlock(ctx, "hangs", "it hangs"))
		<-run.Done()
		return run.Err()
	}, schedlock.Tick(friday))
	require.Error(t, err)
	dies := f.SessionOn(f.Client(), named("web-3"))
	_, err = jobsOf(t, dies).Do(ctx, "cooled", func(run context.Context, _ *schedlock.Run) error {
		require.NoError(t, f.RevokeLease(ctx, dies.Lease()))
		<-run.Done()
		return run.Err()
	}, schedlock.Tick(friday), schedlock.AtLeast(time.Hour))
	require.Error(t, err)
	require.NoError(t, control.Unlock(ctx, "cooled", "it may start again"))
}

// plans has a run that an operator asked for, of a job with many fire times, the plan of a command that cron starts, and what is left
// of one that was removed.
// It is of another session than the plan of the full run: the jobs of a session are those of one Locker.
func plans(t *testing.T, f testkit.Fixture, operator *concurrency.Session) {
	t.Helper()
	ctx, lk := testkit.Context(t), jobsOf(t, f.SessionOn(f.Client(), named("web-4")))
	minutes, err := crontab.Parse("* * * * *", time.UTC)
	require.NoError(t, err)
	ran := make(chan struct{}, 1)
	job, err := lk.Job("asked", minutes, func(context.Context, *schedlock.Run) error { ran <- struct{}{}; return nil })
	require.NoError(t, err)
	job.Next(friday) // as its cron library does
	require.Eventually(t, func() bool { return len(f.Keys("asked/plan")) > 0 && len(f.Keys("/jobs-of/")) > 1 }, testkit.Soon, 10*time.Millisecond)
	id, err := jobsOf(t, operator).RequestRun(ctx, "asked", "to see")
	require.NoError(t, err)
	testkit.Got(t, ran, "the run that was asked for")
	require.Eventually(t, func() bool {
		rec, err := lk.Requested(ctx, "asked", id)
		return err == nil && rec.State == schedlock.RunDone
	}, testkit.Soon, 10*time.Millisecond)
	removed, err := lk.Job("removed", minutes, func(context.Context, *schedlock.Run) error { return nil })
	require.NoError(t, err)
	removed.Next(friday)
	_, err = removed.Trigger(ctx)
	require.NoError(t, err)
	require.NoError(t, removed.Remove(ctx))
	_, err = lk.Do(ctx, "called", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday), schedlock.Planned(minutes, time.Hour))
	require.NoError(t, err)
}

// resolved has a request whose outcome an operator has recorded, and corrected.
func resolved(t *testing.T, web, operator *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(web, "resolved", nil)
	require.NoError(t, err)
	a, _, err := st.Begin(ctx, keyOf("K-resolved"), "payload", idempotency.OnLost(idempotency.Refuse), idempotency.Returns("shop.v1.Receipt"))
	require.NoError(t, err)
	require.NoError(t, a.Abandon(ctx))
	control, err := idempotency.NewStore(operator, "resolved", nil)
	require.NoError(t, err)
	ref := control.Ref(keyOf("K-resolved"))
	require.NoError(t, control.Resolve(ctx, ref, idempotency.HasFailed("the card was refused")))
	rec, _, err := control.Get(ctx, ref)
	require.NoError(t, err)
	require.NoError(t, control.Resolve(ctx, ref, idempotency.WasDone([]byte(`"paid"`)), idempotency.OnlyRevision(rec.Revision)))
}

// reversed is a Codec.
type reversed struct{}

func (reversed) Name() string                            { return "reversed" }
func (reversed) Encode(plain, _ []byte) ([]byte, error)  { return turned(plain), nil }
func (reversed) Decode(stored, _ []byte) ([]byte, error) { return turned(stored), nil }
func turned(b []byte) (out []byte) {
	for _, x := range b {
		out = append([]byte{x}, out...)
	}
	return out
}

// sealed has a recovery point and a result behind a Codec, and a result that was too big.
func sealed(t *testing.T, web *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(web, "sealed", &idempotency.Options{Codec: reversed{}, MaxResult: 100})
	require.NoError(t, err)
	works, _, err := st.Begin(ctx, keyOf("K-works"), "payload")
	require.NoError(t, err)
	_, err = idempotency.Step(works, "charge", func(context.Context) (string, error) { return "ch_1", nil })
	require.NoError(t, err)
	for name, size := range map[string]int{"K-small": 10, "K-big": 1000} {
		a, _, err := st.Begin(ctx, keyOf(name), "payload")
		require.NoError(t, err)
		require.NoError(t, a.Commit(ctx, []byte(strings.Repeat("r", size))))
	}
}

// trail has actions of operators: one on many queues, one that failed, and one whose end is not known.
func trail(t *testing.T, operator *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	on := audit.New(engine.Of(operator), zap.NewNop())
	require.NoError(t, on.Add(ctx, record.Change{Verb: "evict", Name: "owner web-1", Target: "2 permits", Reason: "it hangs", Queues: []string{"semaphore/charge", "semaphore/heavy"}}, "ann"))
	ended := on.Begin(ctx, record.Change{Verb: "set-limit", Name: "semaphore/charge", After: "5"}, "ann")
	ended("2", errors.New("etcd is away"))
	on.Begin(ctx, record.Change{Verb: "pause", Name: "job/sweep", Reason: "maintenance"}, "ann")
}
