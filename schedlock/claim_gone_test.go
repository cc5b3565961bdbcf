package schedlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A claim is applied, its answer is lost with etcd, and the lease ends before etcd is back. The record of the claim has no lease, and
// stayed: the call returned Claimed, by its own process, and others reported the loss of a run that had never begun
// (A443 in internal/proof/tested-failures.md). The call that waits for etcd starts the tick, and nothing is left of one that has given up.
func TestClaimThatEndsWithItsLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		givesUp, again bool
	}{
		"the call waits":                  {},
		"the call gives up":               {givesUp: true},
		"the call waits, after a loss":    {again: true},
		"the call gives up, after a loss": {givesUp: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			so, ended := losing(quick())
			a, b := f.instance(so, nil), f.instance(nil, nil)
			opts := []schedlock.CallOption{schedlock.Tick(tick(1))}
			attempt := 1
			if c.again {
				opts, attempt = append(opts, schedlock.Retries(3)), 2
				f.dies(ctx, tick(1), schedlock.Retries(3))
			} else {
				_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(0)))
				require.NoError(t, err)
			}
			heal, hit := cutsAtClaim(a, attempt)
			var starts atomic.Int64
			call, giveUp := context.WithCancel(ctx)
			defer giveUp()
			done := make(chan answer, 1)
			go func() {
				res, err := a.Do(call, "job", counted(&starts), opts...)
				done <- answer{res, err}
			}()
			require.NoError(t, hit.WaitHit(ctx))
			if c.givesUp {
				giveUp()
				require.ErrorIs(t, got(t, done, "it gives up").err, context.Canceled)
			}
			closed(t, ended, "the lease ends")
			f.NoKeys("/lock")
			heal()
			if !c.givesUp {
				x := got(t, done, "the call returns")
				require.NoError(t, x.err)
				require.Equal(t, []any{schedlock.Ran, attempt}, []any{x.res.Outcome, x.res.Attempt})
				require.EqualValues(t, 1, starts.Load())
				r, err := b.Get(ctx, "job", tick(1))
				require.NoError(t, err)
				require.Equal(t, schedlock.RunDone, r.State)
				return
			}
			require.Eventually(t, func() bool {
				r, err := b.Get(ctx, "job", tick(1))
				return c.again && err == nil && r.Attempt == 1 || !c.again && errors.Is(err, schedlock.ErrGone)
			}, soon, 20*time.Millisecond, "the record is as it was")
			res, err := b.Do(ctx, "job", counted(&starts), opts...)
			require.NoError(t, err)
			require.Equal(t, []any{schedlock.Ran, attempt}, []any{res.Outcome, res.Attempt})
			require.EqualValues(t, 1, starts.Load())
		})
	}
}

// cutsAtClaim makes etcd lose the answer to the claim of an attempt by a process, and answer nothing more until heal is called.
func cutsAtClaim(in instance, attempt int) (heal func(), hit *embedtest.Injection) {
	var cuts []*embedtest.Injection
	match := func(method string, msg any) bool {
		return isClaim(method, msg) && strings.Contains(fmt.Sprint(msg), fmt.Sprintf(`attempt\":%d`, attempt))
	}
	hit = in.client.Inject(embedtest.Fault{Method: "Txn", Match: match, Do: embedtest.DropResponse, After: func() {
		for _, method := range []string{"", "LeaseKeepAlive"} {
			cuts = append(cuts, in.client.Inject(embedtest.Fault{Method: method, Do: embedtest.FailWith, Times: -1}))
		}
	}})
	return func() {
		for _, c := range cuts {
			c.Remove()
		}
	}, hit
}

// A443, of a run that was asked for: the claim has used the request up, and the run is started all the same.
func TestRequestedClaimThatEndsWithItsLease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	so, ended := losing(quick())
	a, operator := f.instance(so, nil), f.instance(nil, nil)
	var starts atomic.Int64
	ran := make(chan struct{}, 10)
	job, err := a.Job("job", nine{}, func(context.Context, *schedlock.Run) error { starts.Add(1); ran <- struct{}{}; return nil })
	require.NoError(t, err)
	_, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	job.Next(time.Now())
	heal, hit := cutsAtClaim(a, 1)
	_, err = operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.NoError(t, hit.WaitHit(ctx))
	closed(t, ended, "the lease ends")
	f.NoKeys("/lock")
	heal()
	got(t, ran, "it is run")
	require.EqualValues(t, 1, starts.Load())
	require.Empty(t, f.Keys("/run-request"))
}
