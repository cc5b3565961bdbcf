package virtual

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/observe"
)

// A lease that was lost at its deadline is not revoked before its margin has
// passed: that is the time in which work under its permits stops.
func TestMarginIsTimeToStop(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		p := d.acquire()
		slot := d.requests()
		// Its renewals reach etcd, and the answers are lost: etcd keeps the lease for longer.
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			return etcdfake.Fault{DropResponse: m.Method == "LeaseKeepAlive" && m.Response}
		})
		ended(t, p)
		require.Equal(t, p.Deadline(), time.Now())
		d.client.Inject(nil)
		time.Sleep(margin - 1)
		synctest.Wait()
		require.Equal(t, slot, d.requests(), "the permit went to others while its work was stopping")
		time.Sleep(time.Second)
		require.Empty(t, d.requests(), "it does not wait for etcd to end the lease")
	})
}

// J3, gocron's elector: a leader whose network goes silent is notified before the next one
// leads, and does not lead again without a new term.
func TestSilencedLeader(t *testing.T) {
	t.Parallel()
	type term struct {
		*concurrency.Permit
		ctx context.Context
		at  time.Time
	}
	bubble(t, 2, func(t *testing.T, on []*desk) {
		over := make(chan struct{})
		defer close(over)
		lead := func(d *desk) (terms chan term, end chan struct{}, result chan error) {
			terms, end, result = make(chan term, 100), make(chan struct{}), make(chan error, 1)
			go func() {
				result <- electionOf(d).Lead(within(t, time.Hour), func(ctx context.Context, p *concurrency.Permit) error {
					terms <- term{p, ctx, time.Now()}
					select { // its work continues when ctx ends
					case <-end:
						return nil
					case <-over:
						return context.Canceled
					}
				})
			}()
			return terms, end, result
		}
		terms, end, result := lead(on[0])
		old := came(t, terms, "it leads")
		notified := make(chan time.Time, 1)
		context.AfterFunc(old.ctx, func() { notified <- time.Now() })
		others, end2, result2 := lead(on[1])
		synctest.Wait()
		require.Len(t, on[0].server.Keys(root+"election/"+queue+"/queue/"), 2)
		on[0].client.Stall()
		next := came(t, others, "the next one leads")
		require.Error(t, old.Err(), "two lead")
		require.Equal(t, margin, next.at.Sub(came(t, notified, "the old leader's context ends")))
		require.Greater(t, next.Token(), old.Token())
		require.ErrorIs(t, context.Cause(old.ctx), concurrency.ErrLost)
		end2 <- struct{}{}
		require.NoError(t, came(t, result2, "Lead returns"))
		end <- struct{}{}
		on[0].client.Heal()
		again := came(t, terms, "it leads again, after it has campaigned")
		require.Greater(t, again.Token(), next.Token())
		require.ErrorIs(t, old.Err(), concurrency.ErrLost)
		end <- struct{}{}
		require.NoError(t, came(t, result, "Lead returns"))
	})
}

// A slow hook delays no renewal: the lease outlives it.
func TestSlowHookDelaysNoRenewal(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, gate := on[0], make(chan struct{})
		defer close(gate)
		var renewals atomic.Int64
		d.open(concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
			if _, ok := e.(observe.LeaseRenewed); ok {
				renewals.Add(1)
				<-gate
			}
		}}}})
		lease, p := d.session.Lease(), d.acquire()
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, renewals.Load())
		require.Equal(t, lease, d.session.Lease())
		require.True(t, p.Deadline().After(time.Now()))
		require.NoError(t, p.Release(t.Context()))
	})
}
