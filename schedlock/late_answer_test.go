package schedlock_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A173: etcd ends the lease of a run whose end is being recorded, and the session learns of that before etcd's
// answer arrives. The answer counts: the end is recorded, or the lock was gone and the run is lost. Without an
// answer the end is not confirmed.
func TestAnswerBehindTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   embedtest.Action
		before  bool // the lease is revoked when the request is sent, and not when it is held up
		silent  bool // what is held up does not arrive
		want    schedlock.Outcome
		unknown bool
		state   schedlock.State // as others see it
	}{
		"the request is late":                 {fault: embedtest.HoldRequest, want: schedlock.Lost, state: schedlock.RunLost},
		"the response is late":                {fault: embedtest.HoldResponse, want: schedlock.Ran, state: schedlock.RunDone},
		"the request does not arrive":         {fault: embedtest.HoldRequest, silent: true, want: schedlock.Ran, unknown: true, state: schedlock.RunLost},
		"the request is lost, and sent again": {fault: embedtest.FailWith, before: true, want: schedlock.Ran, unknown: true, state: schedlock.RunLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			lasting := concurrency.SessionOptions{TTL: 300 * time.Second}
			in, other := f.instance(&lasting, nil), f.instance(&lasting, nil)
			lease := in.sess.Lease()
			var once sync.Once
			revoke := func() {
				once.Do(func() {
					if err := f.RevokeLease(ctx, lease); err != nil {
						t.Error(err)
					}
				})
			}
			fault := embedtest.Fault{Method: "Txn", Match: isFinish, Do: c.fault}
			if c.before {
				// Its watch does not say so: the repeated Txn finds it out.
				in.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: func(_ string, msg any) bool {
					r, ok := msg.(*etcdserverpb.WatchResponse)
					return ok && len(r.Events) > 0 && strings.Contains(string(r.Events[0].Kv.Key), "/session/")
				}})
				fault.Before = revoke
			}
			request := in.client.Inject(fault)
			done := make(chan answer, 1)
			go func() {
				res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
				done <- answer{res, err}
			}()
			require.NoError(t, request.WaitHit(ctx))
			revoke()
			if !c.before {
				_, err := in.Do(ctx, "on the next lease", nothing, schedlock.Tick(tick(1)))
				require.NoError(t, err)
			}
			if !c.silent {
				require.NoError(t, request.Release())
			}
			a := got(t, done, "the call returns")
			require.Equal(t, c.want, a.res.Outcome)
			if c.want == schedlock.Lost {
				require.ErrorIs(t, a.err, schedlock.ErrLost)
			} else {
				require.NoError(t, a.err)
			}
			if c.unknown {
				unconfirmed(t, a.res)
			} else {
				require.NoError(t, a.res.Unconfirmed)
			}
			rec, err := other.Get(ctx, "job", tick(1))
			require.NoError(t, err)
			require.Equal(t, c.state, rec.State)
		})
	}
}
