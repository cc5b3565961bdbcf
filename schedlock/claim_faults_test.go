package schedlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// isClaim and isFinish recognize the two Txns of a run by the first operation of each. The
// first claim of a job, which finds no settings, is void; tests skip it.
func isClaim(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) > 0 && strings.HasSuffix(string(r.Success[0].GetRequestPut().GetKey()), "/lock")
}

func isFinish(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) > 0 && strings.HasSuffix(string(r.Success[0].GetRequestDeleteRange().GetKey()), "/lock")
}

// isRemoval matches a transaction that deletes something, such as the removal of a lock.
func isRemoval(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && slices.ContainsFunc(r.Success, func(op *etcdserverpb.RequestOp) bool { return op.GetRequestDeleteRange() != nil })
}

// counted returns a function that counts its starts.
func counted(n *atomic.Int64) schedlock.Func {
	return func(context.Context, *schedlock.Run) error { n.Add(1); return nil }
}

// J8: a request of a run is applied and its answer lost, or sent twice, or it comes late.
// The tick starts once, its end is recorded, and no copy touches what comes after.
func TestDoubtfulRequests(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"claim applied, not answered":  {Match: isClaim, Do: embedtest.DropResponse},
		"claim sent twice":             {Match: isClaim, Do: embedtest.Duplicate},
		"finish applied, not answered": {Match: isFinish, Do: embedtest.DropResponse},
		"finish sent twice":            {Match: isFinish, Do: embedtest.Duplicate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			var starts atomic.Int64
			_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(0)))
			require.NoError(t, err)
			fault.Method = "Txn"
			inj := a.client.Inject(fault)
			res, err := a.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)))
			require.NoError(t, err)
			require.Equal(t, 1, inj.Hits())
			require.Equal(t, schedlock.Ran, res.Outcome)

			end := make(chan struct{})
			started, done := do(ctx, b.Locker, "job", end, schedlock.Tick(tick(2)))
			next := got(t, started, "the next tick")
			_ = inj.Release() // the late copies
			require.NoError(t, next.Check(ctx))
			require.Len(t, f.Keys("/lock"), 1)
			close(end)
			require.NoError(t, got(t, done, "its end").err)

			res, err = b.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)))
			require.NoError(t, err)
			require.Contains(t, []schedlock.Outcome{schedlock.Claimed, schedlock.Late}, res.Outcome)
			require.EqualValues(t, 1, starts.Load())
			h, err := b.History(ctx, "job")
			require.NoError(t, err)
			require.Len(t, h, 3)
			for _, r := range h {
				require.Equal(t, schedlock.RunDone, r.State)
			}
			require.Empty(t, f.Keys("/lock"))
		})
	}
}

// J8: the caller gives up while its claim is in flight. Whenever it arrives, nothing is
// started for it, and the tick is free for others.
func TestClaimGivenUp(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]embedtest.Action{
		"applied, and not answered":        embedtest.HoldResponse,
		"arrives when its caller has gone": embedtest.HoldRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: what})
			short, cancel := context.WithCancel(ctx)
			_, done := do(short, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Minute), schedlock.AtMost(time.Minute))
			require.NoError(t, inj.WaitHit(ctx))
			cancel()
			x := got(t, done, "the call returns")
			require.ErrorIs(t, x.err, context.Canceled)
			require.Zero(t, x.res.Token)
			_ = inj.Release()
			f.NoKeys("/lock")
			f.NoKeys("/cooldown")
			f.NoKeys("/run/")
			// A third one, for b may have learned of the claim and left it alone.
			res, err := f.instance(nil, nil).Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.AtMost(time.Minute), schedlock.AtLeast(time.Minute))
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome)
			_ = b
		})
	}
}

// J27: a session is closed while a claim is on its way. Others may have learned of the claim
// and left the tick alone, so it is run, and Close waits for that.
func TestCloseDuringAClaim(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.HoldResponse})
	var starts atomic.Int64
	done, shut := make(chan answer, 1), make(chan error, 1)
	go func() {
		res, err := a.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)))
		done <- answer{res, err}
	}()
	require.NoError(t, inj.WaitHit(ctx))
	go func() { shut <- a.sess.Close(ctx) }()
	require.Eventually(t, func() bool {
		_, err := a.Do(ctx, "other", nothing)
		return err != nil
	}, soon, 20*time.Millisecond, "it closes")
	res, err := b.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Claimed, res.Outcome)
	require.NoError(t, inj.Release())
	x := got(t, done, "the call returns")
	require.NoError(t, x.err)
	require.Equal(t, schedlock.Ran, x.res.Outcome)
	require.NoError(t, got(t, shut, "Close returns"))
	require.EqualValues(t, 1, starts.Load())
	r, err := b.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.RunDone, r.State)
}

// A session is lost between the claim and the start: the claim is taken back, and the same
// call starts the tick on its next lease.
func TestLostBeforeTheStart(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	so, lost := losing(quick())
	a := f.instance(so, nil)
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.HoldResponse})
	renewals := a.client.Inject(embedtest.Fault{Method: "LeaseKeepAlive", Do: embedtest.HoldRequest, Times: -1})
	var starts atomic.Int64
	done := make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)))
		done <- answer{res, err}
	}()
	require.NoError(t, inj.WaitHit(ctx))
	closed(t, lost, "the session loses its lease")
	renewals.Remove()
	require.NoError(t, inj.Release())
	x := got(t, done, "the call returns")
	require.NoError(t, x.err)
	require.Equal(t, schedlock.Ran, x.res.Outcome)
	require.Equal(t, 1, x.res.Attempt)
	require.EqualValues(t, 1, starts.Load())
}

// J6: a run has ended in etcd and its process has received no event, because its watch is silent. Its
// finish finds another's lock, touches nothing, and says that it was lost.
func TestStaleFinish(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	end, end2 := make(chan struct{}), make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)))
	old := got(t, started, "it starts")
	silent := a.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldResponse, Times: -1})
	require.NoError(t, b.Unlock(ctx, "job", "for the test"))
	started2, done2 := do(ctx, b.Locker, "job", end2, schedlock.Tick(tick(2)))
	next := got(t, started2, "the next one starts")
	before := f.Values("/job/")
	require.NoError(t, old.Err(), "it has had no notice")
	resp, err := old.Txn(ctx).Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded, "its guard")
	close(end)
	x := got(t, done, "the old one ends")
	require.ErrorIs(t, x.err, schedlock.ErrLost)
	require.Equal(t, schedlock.Lost, x.res.Outcome)
	require.NoError(t, next.Check(ctx))
	require.Greater(t, next.Token(), old.Token())
	require.Equal(t, before, f.Values("/job/"))
	silent.Remove()
	_ = silent.Release()
	close(end2)
	require.NoError(t, got(t, done2, "the next one ends").err)
}

// J10: a claim takes longer than a period. It is for the tick for which it was made.
func TestClaimAcrossAPeriod(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(anHourAgo)
	a, b := f.instance(nil, h.options()), f.instance(nil, h.options())
	_, err := a.Do(ctx, "job", nothing, schedlock.Every(time.Minute))
	require.NoError(t, err)
	h.set(anHourAgo.Add(time.Minute))
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse})
	done := make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "job", nothing, schedlock.Every(time.Minute))
		done <- answer{res, err}
	}()
	require.NoError(t, inj.WaitHit(ctx))
	h.set(anHourAgo.Add(2*time.Minute + time.Second))
	require.NoError(t, inj.Release())
	x := got(t, done, "it ends")
	require.NoError(t, x.err)
	require.Equal(t, []any{schedlock.Ran, anHourAgo.Add(time.Minute).UTC()}, []any{x.res.Outcome, x.res.Tick})
	res, err := b.Do(ctx, "job", nothing, schedlock.Every(time.Minute))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.Ran, anHourAgo.Add(2 * time.Minute).UTC()}, []any{res.Outcome, res.Tick})
}

// J21: something comes in between while a claim is on its way, after all was well when its
// sender looked. The Txn itself decides, and nothing is started.
func TestClaimOvertaken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		overtake func(ctx context.Context, c instance) error
		out      schedlock.Outcome
	}{
		"by a later tick": {func(ctx context.Context, c instance) error {
			_, err := c.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.Retries(1))
			return err
		}, schedlock.Late},
		"by another claim of the attempt": {func(ctx context.Context, c instance) error {
			res, err := c.Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.Retries(1))
			if err == nil && res.Outcome != schedlock.Ran {
				err = fmt.Errorf("it %v", res.Outcome)
			}
			return err
		}, schedlock.Claimed},
		"by a pause": {func(ctx context.Context, c instance) error { return c.Pause(ctx, "job", "") }, schedlock.Paused},
	} {
		for attempt, text := range []string{`"attempt":1`, `"attempt":2`} {
			t.Run(name+", "+text, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
				_, err := c.Do(ctx, "job", nothing, schedlock.Tick(tick(0)), schedlock.Retries(1))
				require.NoError(t, err)
				if attempt == 1 {
					started, _ := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.Retries(1))
					got(t, started, "it starts")
					lease := a.sess.Lease()
					a.client.Cut()
					defer a.client.Heal()
					require.NoError(t, f.RevokeLease(ctx, lease))
				}
				inj := b.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Match: func(m string, msg any) bool {
					return isClaim(m, msg) && strings.Contains(string(msg.(*etcdserverpb.TxnRequest).Success[0].GetRequestPut().Value), text)
				}})
				var starts atomic.Int64
				done := make(chan answer, 1)
				go func() {
					res, err := b.Do(ctx, "job", counted(&starts), schedlock.Tick(tick(1)), schedlock.Retries(1))
					done <- answer{res, err}
				}()
				require.NoError(t, inj.WaitHit(ctx))
				require.NoError(t, tt.overtake(ctx, c))
				require.NoError(t, inj.Release())
				x := got(t, done, "it returns")
				require.NoError(t, x.err)
				require.Equal(t, tt.out, x.res.Outcome)
				require.Zero(t, starts.Load())
				require.Empty(t, f.Keys("/lock"))
			})
		}
	}
}

// etcd runs out of space while a job runs. The call returns how it went; the job stays
// locked, since no process could claim it either, and its end is recorded when there is space.
func TestFinishWithoutSpace(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)), schedlock.Retries(1))
	got(t, started, "it starts")
	require.NoError(t, f.SetNoSpace(ctx, true))
	close(end)
	x := got(t, done, "the call returns")
	require.NoError(t, x.err)
	require.Equal(t, schedlock.Ran, x.res.Outcome)
	require.Len(t, f.Keys("/lock"), 1, "it cannot be taken for lost and started again")
	require.NoError(t, f.SetNoSpace(ctx, false))
	f.NoKeys("/lock")
	r, err := a.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, schedlock.RunDone, r.State)
}

// The caller of a further attempt gives up while its claim is on its way: the attempt is not
// used up.
func TestFurtherAttemptGivenUp(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]embedtest.Action{
		"applied, and not answered":        embedtest.HoldResponse,
		"arrives when its caller has gone": embedtest.HoldRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1)}
			started, _ := do(ctx, a.Locker, "job", nil, opts...)
			got(t, started, "the first attempt")
			lease := a.sess.Lease()
			a.client.Cut()
			defer a.client.Heal()
			require.NoError(t, f.RevokeLease(ctx, lease))
			inj := b.client.Inject(embedtest.Fault{Method: "Txn", Do: what, Match: func(m string, msg any) bool {
				return isClaim(m, msg) && strings.Contains(string(msg.(*etcdserverpb.TxnRequest).Success[0].GetRequestPut().GetValue()), `"attempt":2`)
			}})
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			_, done := do(short, b.Locker, "job", nil, opts...)
			require.NoError(t, inj.WaitHit(ctx))
			cancel()
			require.ErrorIs(t, got(t, done, "the call returns").err, context.Canceled)
			_ = inj.Release()
			f.NoKeys("/lock")
			require.Eventually(t, func() bool {
				r, err := b.Get(ctx, "job", tick(1))
				return err == nil && r.Attempt == 1 && r.State == schedlock.RunLost && r.Owner == a.sess.Owner()
			}, soon, 20*time.Millisecond)
			started, done = do(ctx, f.instance(nil, nil).Locker, "job", closedCh(), opts...)
			require.Equal(t, 2, got(t, started, "the second attempt").Attempt())
			require.NoError(t, got(t, done, "its end").err)
		})
	}
}

// Claims of other jobs that hang do not keep a job from its own for longer than a moment.
func TestHungClaims(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(ctxT(t))
	a := f.instance(nil, nil)
	hung := []string{"u", "v", "w", "x", "y", "z"}
	for _, name := range append(hung, "job") {
		_, err := a.Do(ctx, name, nothing, schedlock.Tick(tick(0)))
		require.NoError(t, err)
	}
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Times: -1, Match: func(m string, msg any) bool {
		return isClaim(m, msg) && !strings.Contains(string(msg.(*etcdserverpb.TxnRequest).Success[0].GetRequestPut().GetKey()), "/job/job/")
	}})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, name := range hung {
		wg.Go(func() { _, _ = a.Do(ctx, name, nothing, schedlock.Tick(tick(1))) })
	}
	require.Eventually(t, func() bool { return inj.Hits() >= 4 }, soon, 20*time.Millisecond)
	res, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// A call waits between two leases of its session, and learns that another process has claimed its
// tick. When its ctx ends it returns that, not that etcd was unavailable.
func TestClaimedBetweenLeases(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(anHourAgo)
	var asked atomic.Int64
	o := h.options()
	now := o.Now
	o.Now = func() time.Time { asked.Add(1); return now() }
	a, b := f.instance(nil, o), f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(-60)))
	require.NoError(t, err)
	a.client.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.FailWith, Err: status.Error(codes.Unavailable, "for the test"), Times: -1})
	lease := a.sess.Lease()
	require.NoError(t, f.RevokeLease(ctx, lease))
	require.Eventually(t, func() bool { return a.sess.Lease() != lease }, soon, 20*time.Millisecond, "its lease is lost")

	short, cancel := context.WithCancel(ctx)
	defer cancel()
	before := asked.Load()
	_, done := do(short, a.Locker, "job", nil, schedlock.Tick(tick(0)))
	require.Eventually(t, func() bool { return asked.Load() >= before+2 }, soon, 20*time.Millisecond, "it waits")
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.Eventually(t, func() bool {
		probe, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		res, err := a.Do(probe, "job", nothing, schedlock.Tick(tick(0)))
		return err == nil && res.Outcome == schedlock.Claimed
	}, soon, 20*time.Millisecond, "its watch has shown the claim")
	cancel()
	x := got(t, done, "it returns")
	require.NoError(t, x.err)
	require.Equal(t, []any{schedlock.Claimed, b.sess.Owner()}, []any{x.res.Outcome, x.res.Owner})
}
