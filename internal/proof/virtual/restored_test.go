package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/schedlock"
)

// passes lets etcd use up revisions, which a restore takes back.
func (d *desk) passes(revisions int) {
	d.t.Helper()
	for range revisions {
		_, err := d.client.Put(d.t.Context(), "elsewhere", "")
		require.NoError(d.t, err)
	}
}

// A485 in internal/proof/tested-failures.md: a restored backup costs a session one lease, whatever finds it first: a request,
// lists that stay older, or the end of a lease that the backup does not have.
func TestRestoreCostsOneLease(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) { // each pair of young and callers
		young, callers := seed%2 == 1, int(seed%5)*4
		t.Run(fmt.Sprintf("%d: young %v, %d callers", seed, young, callers), func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				restore := d.server.Backup()
				var lost atomic.Int64
				d.open(concurrency.SessionOptions{TTL: 5 * time.Second, Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
					if _, ok := e.(observe.SessionLost); ok {
						lost.Add(1)
					}
				}}}})
				d.locker() // its lists find it, too
				if !young {
					restore = d.server.Backup()
				}
				d.passes(3000)
				r := rand.New(rand.NewPCG(seed, 0))
				var mu sync.Mutex
				delay := func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(r.Int64N(int64(20 * time.Millisecond)))
				}
				d.client.Inject(func(etcdfake.Message) etcdfake.Fault {
					return etcdfake.Fault{RequestDelay: delay(), ResponseDelay: delay()}
				})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var load sync.WaitGroup
				for i := range callers {
					sem, err := concurrency.NewSemaphore(d.session, fmt.Sprint(i), 1, nil)
					require.NoError(t, err)
					load.Go(func() {
						for err := error(nil); ctx.Err() == nil && !errors.Is(err, concurrency.ErrClosed); {
							err = sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
								select {
								case <-ctx.Done():
								case <-time.After(50 * time.Millisecond):
								}
								return nil
							})
						}
					})
				}
				time.Sleep(5*time.Second + delay()*50)
				require.Zero(t, lost.Load())
				restore()
				time.Sleep(12 * time.Second) // a second lease would be lost within two TTLs
				stop()
				load.Wait()
				require.EqualValues(t, 1, lost.Load())
				require.NotZero(t, d.session.Lease())
				d.client.Inject(nil)
				require.NoError(t, d.acquire().Release(t.Context()))
			})
		})
	}
}

// A486 in internal/proof/tested-failures.md: after a restored backup, revisions are below those that a process has seen of its
// jobs. Runs begin, requests for runs are started, and lost runs are reported, as soon as the session has noticed.
func TestJobsAfterARestore(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		var losses, asked atomic.Int64
		opts := &schedlock.Options{Lost: func(schedlock.Record) { losses.Add(1) }}
		l, err := schedlock.New(d.session, opts)
		require.NoError(t, err)
		l2, err := schedlock.New(other.session, opts)
		require.NoError(t, err)
		job, err := l.Job("asked", schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { asked.Add(1); return nil })
		require.NoError(t, err)
		_, _ = job.RunContext(t.Context())
		job.Next(time.Now())
		runs := func(n int) {
			t.Helper()
			res, err := l.Do(t.Context(), "job", noWork, fireTime(n))
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome)
		}
		asks := func() {
			t.Helper()
			was := asked.Load()
			_, err := l.RequestRun(t.Context(), "asked", "test")
			require.NoError(t, err)
			time.Sleep(2 * time.Minute)
			require.Equal(t, was+1, asked.Load(), "the run that was asked for")
		}
		loses := func(n int) {
			t.Helper()
			was := losses.Load()
			begun, done := doing(t.Context(), l2, false, nil, fireTime(n))
			<-begun
			other.server.Expire(other.session.Lease())
			<-done
			time.Sleep(2 * time.Minute)
			require.Equal(t, was+1, losses.Load(), "the run that was lost")
		}
		runs(1)
		loses(2)
		restore := d.server.Backup()
		d.passes(1000)
		runs(3)
		loses(4)
		asks()
		restore()
		time.Sleep(2 * time.Minute) // the sessions notice
		runs(5)
		asks()
		loses(6)
		runs(7)
	})
}

// A487 in internal/proof/tested-failures.md: an answer that was under way when a backup was restored is of the former history. It
// costs no second lease, and a call that asks gets what is there now.
func TestAnswerOfAFormerHistory(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		var lost atomic.Int64
		d.open(concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
			if _, ok := e.(observe.SessionLost); ok {
				lost.Add(1)
			}
		}}}})
		require.NoError(t, d.acquire().Release(t.Context()))
		restore := d.server.Backup()
		d.passes(3000)
		p := d.acquire()
		var slow atomic.Bool
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			_, read := m.Body.(*etcdserverpb.RangeRequest)
			_, txn := m.Body.(*etcdserverpb.TxnRequest)
			if (read || txn) && slow.CompareAndSwap(true, false) {
				return etcdfake.Fault{ResponseDelay: 3 * time.Second}
			}
			return etcdfake.Fault{}
		})
		slow.Store(true)
		var asked sync.WaitGroup
		asked.Go(func() {
			st, err := d.semaphore(1).Status(t.Context())
			require.NoError(t, err)
			require.Empty(t, st.Holders, "the permit was of the former history")
		})
		time.Sleep(100 * time.Millisecond)
		require.False(t, slow.Load())
		restore()
		require.NoError(t, d.acquire().Release(t.Context()))
		require.Error(t, p.Err())
		asked.Wait()
		require.NoError(t, d.acquire().Release(t.Context()))
		time.Sleep(20 * time.Second)
		require.EqualValues(t, 1, lost.Load())
	})
}
