package schedlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// refusedText is logged at the first refusal.
const refusedText = "etcd refuses to start a tick, which is repeated"

// onlyCalls are the calls that are the only one of their process for a tick of midnight's day.
func onlyCalls() map[string]func(ctx context.Context, in instance, fn schedlock.Func) (schedlock.Result, error) {
	day := 24 * time.Hour
	return map[string]func(ctx context.Context, in instance, fn schedlock.Func) (schedlock.Result, error){
		"Job": func(ctx context.Context, in instance, fn schedlock.Func) (schedlock.Result, error) {
			j, err := in.Job("job", schedlock.Periods(day), fn)
			if err != nil {
				return schedlock.Result{}, err
			}
			return j.RunContext(ctx)
		},
		"Wrap": func(ctx context.Context, in instance, fn schedlock.Func) (res schedlock.Result, err error) {
			only, err := schedlock.Wrap[cronJob](in.Locker, "job", day)
			if err == nil {
				only(cronFunc(func() { err = fn(ctx, nil); res.Outcome = schedlock.Ran })).Run()
			}
			return res, err
		},
		"Adapter": func(ctx context.Context, in instance, fn schedlock.Func) (schedlock.Result, error) {
			a, err := schedlock.NewAdapter(in.Locker, schedlock.Periods(day))
			if err != nil {
				return schedlock.Result{}, err
			}
			s, res, err := a.Start(ctx, "job")
			if s != nil {
				res.Outcome, err = schedlock.Ran, s.End(ctx, fn(ctx, s.Run()))
			}
			return res, err
		},
	}
}

// A408: etcd refuses the only call for a tick at the fire time, and an operator mends that. The tick starts once, also if the
// refused claim was applied. The call ended at once, and the tick was left out.
func TestOnlyCallIsRefused(t *testing.T) {
	t.Parallel()
	for refusal, fault := range map[string]embedtest.Fault{
		"no space":                       {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace},
		"no space, and applied":          {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace, Skip: 1, Times: 1}, // the first claim of a job is void
		"permission denied":              {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied},
		"authentication failed":          {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCAuthFailed, Times: 2},
		"permission denied after a copy": {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCPermissionDenied, Times: 1},
		"no user":                        {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCUserEmpty},
	} {
		for name, call := range onlyCalls() {
			t.Run(name+"/"+refusal, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				in, lines := f.logged(nil, clock(midnight).options())
				var starts atomic.Int64
				tries := make(chan struct{}, 100)
				fault := fault
				fault.Method, fault.Match = "Txn", func(m string, msg any) bool {
					is := isClaim(m, msg)
					if is {
						tries <- struct{}{}
					}
					return is
				}
				lasting := fault.Times == 0
				if lasting {
					fault.Times = -1
				}
				inj := in.client.Inject(fault)
				end := make(chan answer, 1)
				go func() {
					res, err := call(ctxT(t), in, counted(&starts))
					end <- answer{res, err}
				}()
				for range 2 {
					select {
					case <-tries:
					case a := <-end:
						require.Fail(t, "it has not tried again", "%v, %v", a.res, a.err)
					}
				}
				if lasting {
					inj.Remove()
				}
				a := got(t, end, "the call returns")
				require.NoError(t, a.err)
				require.Equal(t, schedlock.Ran, a.res.Outcome)
				require.EqualValues(t, 1, starts.Load())
				require.Equal(t, 1, lines.FilterMessage(refusedText).Len(), messages(lines))
				h, err := in.History(ctxT(t), "job")
				require.NoError(t, err)
				require.Len(t, h, 1)
				require.Equal(t, schedlock.RunDone, h[0].State)
			})
		}
	}
}

// A408: a refused claim was applied, and is not removed yet. The next one is not sent before: it would find the tick claimed.
func TestRefusedClaimIsRemovedFirst(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, clock(midnight).options())
	var starts atomic.Int64
	applied := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	removal := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isRemoval, Do: embedtest.HoldRequest})
	j, err := in.Job("job", schedlock.Periods(24*time.Hour), counted(&starts))
	require.NoError(t, err)
	end := make(chan answer, 1)
	go func() {
		res, err := j.RunContext(ctxT(t))
		end <- answer{res, err}
	}()
	require.NoError(t, removal.WaitHit(ctxT(t)))
	require.Equal(t, 1, applied.Hits())
	require.Len(t, f.Keys("/run/"), 1)
	require.Zero(t, starts.Load(), "the removal is not the end of a run")
	select {
	case a := <-end:
		require.Fail(t, "it has not waited for the removal", "%v, %v", a.res, a.err)
	case <-time.After(500 * time.Millisecond): // longer than its pause
	}
	require.NoError(t, removal.Release())
	a := got(t, end, "the call returns")
	require.NoError(t, a.err)
	require.Equal(t, schedlock.Ran, a.res.Outcome)
	require.EqualValues(t, 1, starts.Load())
}

// A408: the reads of such a call are refused, with which it finds out why its claim had no effect.
func TestReadOfAnOnlyCallIsRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := clock(midnight)
	in := f.instance(nil, h.options())
	var starts atomic.Int64
	_, err := f.instance(nil, h.options()).Do(ctxT(t), "job", nothing, schedlock.Tick(midnight.Add(-time.Hour)), schedlock.AtLeast(time.Hour), schedlock.AtMost(time.Hour))
	require.NoError(t, err)
	inj := in.client.Inject(embedtest.Fault{Method: "Txn", Match: func(m string, msg any) bool { return !isClaim(m, msg) }, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Times: 2})
	j, err := in.Job("job", schedlock.Periods(24*time.Hour), counted(&starts), schedlock.AtLeast(time.Hour), schedlock.AtMost(time.Hour))
	require.NoError(t, err)
	res, err := j.RunContext(ctxT(t))
	require.NoError(t, err)
	require.Equal(t, schedlock.StillRunning, res.Outcome)
	require.Equal(t, 2, inj.Hits())
}

// A408: the refusal lasts until it is too late for the tick, the call's ctx ends or the session closes. The call has the
// refusal as its error, but for Close. A827: that is so, too, if a claim is in flight then.
func TestOnlyCallIsRefusedForLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lateBy time.Duration
		end    func(in instance, cancel context.CancelFunc)
		want   []error
	}{
		"too late": {lateBy: 2 * time.Second, want: []error{rpctypes.ErrPermissionDenied}},
		"its ctx":  {end: func(_ instance, cancel context.CancelFunc) { cancel() }, want: []error{rpctypes.ErrPermissionDenied, context.Canceled}},
		"Close":    {end: func(in instance, _ context.CancelFunc) { _ = in.sess.Close(endedCtx()) }, want: []error{schedlock.ErrClosed}},
	} {
		refusedForLong := func(t *testing.T, flight bool) {
			t.Parallel()
			f := shared(t)
			in, lines := f.logged(nil, clock(midnight).options())
			refused := embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Times: -1}
			if flight {
				refused.Times = 1
			}
			inj := in.client.Inject(refused)
			var opts []schedlock.JobOption
			if c.lateBy > 0 {
				opts = append(opts, schedlock.LateBy(c.lateBy))
			}
			var starts atomic.Int64
			j, err := in.Job("job", schedlock.Periods(24*time.Hour), counted(&starts), opts...)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			end := make(chan answer, 1)
			go func() {
				res, err := j.RunContext(ctx)
				end <- answer{res, err}
			}()
			require.NoError(t, inj.WaitHit(ctxT(t)))
			if flight {
				require.NoError(t, in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldRequest, Times: -1}).WaitHit(ctxT(t)))
			}
			if c.end != nil {
				require.Eventually(t, func() bool { return lines.FilterMessage(refusedText).Len() == 1 }, soon, time.Millisecond)
				c.end(in, cancel)
			}
			a := got(t, end, "the call returns")
			for _, want := range c.want {
				require.ErrorIs(t, a.err, want)
			}
			require.Zero(t, starts.Load())
			require.Equal(t, 1, lines.FilterMessage(refusedText).Len(), messages(lines))
		}
		t.Run(name, func(t *testing.T) { refusedForLong(t, false) })
		t.Run(name+"/while a claim is in flight", func(t *testing.T) { refusedForLong(t, true) })
	}
}

// Do returns the refusal at once: its caller can call it again.
func TestDoIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for _, refusal := range []error{rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCPermissionDenied} {
		inj := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.FailWith, Err: refusal, Times: -1})
		_, err := in.Do(ctxT(t), "job", nothing, schedlock.Tick(tick(1)))
		require.ErrorIs(t, err, rpctypes.Error(refusal))
		require.Equal(t, 1, inj.Hits())
		inj.Remove()
	}
}
