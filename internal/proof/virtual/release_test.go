package virtual

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// ends counts how permits have ended, and says when the last one did.
type ends struct {
	lost, released, unconfirmed atomic.Int64
	last                        atomic.Pointer[time.Time]
}

func (e *ends) add(n *atomic.Int64) {
	now := time.Now()
	e.last.Store(&now)
	n.Add(1)
}

// open replaces the session of a process by one with other options.
func (d *desk) open(o concurrency.SessionOptions) { d.openIn(d.t.Context(), o) }

func (d *desk) openIn(ctx context.Context, o concurrency.SessionOptions) {
	if o.TTL == 0 {
		o.TTL, o.Margin = ttl, margin
	}
	o.Prefix = prefix
	_ = d.session.Close(d.t.Context())
	var err error
	d.session, err = concurrency.NewSession(ctx, d.client.Client, "test", &o)
	require.NoError(d.t, err)
	d.begun = time.Now()
}

// traced opens a second session of a process, on which the ends of permits are counted.
func (d *desk) traced(o concurrency.SessionOptions) *ends {
	e := &ends{}
	o.Hooks = testkit.Trace{
		Lost:        func(*concurrency.LostError) { e.add(&e.lost) },
		Released:    func(observe.Call, observe.Outcome) { e.add(&e.released) },
		Unconfirmed: func(*concurrency.UnconfirmedError) { e.add(&e.unconfirmed) },
	}.Hooks()
	d.open(o)
	return e
}

var errOwn = errors.New("the function's own")

// underPermit are the ways to run a function under a permit.
var underPermit = map[string]func(d *desk, fn func(context.Context, *concurrency.Permit) error) error{
	"Semaphore.Do": func(d *desk, fn func(context.Context, *concurrency.Permit) error) error {
		return d.semaphore(1).Do(d.t.Context(), fn)
	},
	"Mutex.Do": func(d *desk, fn func(context.Context, *concurrency.Permit) error) error {
		mu, err := concurrency.NewMutex(d.session, queue)
		require.NoError(d.t, err)
		return mu.Do(d.t.Context(), fn)
	},
	"Mutex.Do with MaxHold": func(d *desk, fn func(context.Context, *concurrency.Permit) error) error {
		mu, err := concurrency.NewMutex(d.session, queue)
		require.NoError(d.t, err)
		return mu.Do(d.t.Context(), fn, concurrency.MaxHold(4*time.Second))
	},
	"Election.Lead": func(d *desk, fn func(context.Context, *concurrency.Permit) error) error {
		el, err := concurrency.NewElection(d.session, queue)
		require.NoError(d.t, err)
		return el.Lead(d.t.Context(), fn)
	},
}

// A11, A12: etcd goes away while a function works, and its permit is valid when it
// returns. Its result is returned, as it is, when ReleaseTimeout has passed. The permit is
// not reported as lost, neither then nor when the lease has ended. If etcd comes back
// before that, the release is confirmed.
func TestOutageWhenTheWorkIsDone(t *testing.T) {
	t.Parallel()
	for name, run := range underPermit {
		for result, own := range map[string]error{"success": nil, "failure": errOwn} {
			for back, timeout := range map[bool]time.Duration{true: 0, false: 700 * time.Millisecond} {
				t.Run(name+", "+result, func(t *testing.T) {
					bubble(t, 1, func(t *testing.T, on []*desk) {
						d := on[0]
						reported := d.traced(concurrency.SessionOptions{ReleaseTimeout: timeout})
						var permit *concurrency.Permit
						var done time.Time
						err := run(d, func(_ context.Context, p *concurrency.Permit) error {
							permit = p
							time.Sleep(time.Second)
							d.client.Refuse()
							time.Sleep(time.Second)
							done = time.Now()
							require.NoError(t, p.Err())
							return own
						})
						waited := 2 * time.Second
						if timeout > 0 {
							waited = timeout
						}
						require.Equal(t, waited, time.Since(done))
						require.Equal(t, own, err)
						require.ErrorIs(t, permit.Release(gaveUp), concurrency.ErrUnconfirmed)
						if back {
							d.client.Heal()
							require.NoError(t, permit.Release(within(t, time.Minute)), "it continued")
							synctest.Wait() // a caller of Release that waits may return before the hooks are called
							require.EqualValues(t, 1, reported.released.Load())
							require.Zero(t, reported.unconfirmed.Load())
						} else {
							err := permit.Release(within(t, time.Minute))
							unconfirmed(t, err)
							require.ErrorContains(t, err, "not renewed in time")
							synctest.Wait()
							require.EqualValues(t, 1, reported.unconfirmed.Load())
							require.Equal(t, d.begun.Add(ttl-margin), *reported.last.Load(), "the end of the lease")
						}
						require.Zero(t, reported.lost.Load())
					})
				})
			}
		}
	}
}

var gaveUp = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func unconfirmed(t *testing.T, err error) {
	t.Helper()
	var u *concurrency.UnconfirmedError
	require.ErrorAs(t, err, &u)
	require.ErrorIs(t, err, concurrency.ErrUnconfirmed)
	require.NotErrorIs(t, err, concurrency.ErrLost)
	require.Equal(t, queue, u.Name)
	require.NotZero(t, u.Token)
}

// A11: Release says whether the permit had ended before the call, whether etcd has found
// it gone, or whether only the confirmation is missing, and why.
func TestReleaseSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(d *desk, p *concurrency.Permit)
		ctx    time.Duration
		check  func(t *testing.T, err error)
		after  func(t *testing.T, err error) // of a later call
	}{
		"etcd is away until ctx ends": {
			before: func(d *desk, _ *concurrency.Permit) { d.client.Refuse() }, ctx: 3 * time.Second,
			check: func(t *testing.T, err error) { unconfirmed(t, err); require.ErrorIs(t, err, context.DeadlineExceeded) },
			after: unconfirmed,
		},
		"etcd swallows it until ctx ends": {
			before: func(d *desk, _ *concurrency.Permit) { d.client.Stall() }, ctx: 3 * time.Second,
			check: func(t *testing.T, err error) { unconfirmed(t, err); require.ErrorIs(t, err, context.DeadlineExceeded) },
			after: unconfirmed,
		},
		"etcd is away until the lease ends": {
			before: func(d *desk, _ *concurrency.Permit) { d.client.Refuse() }, ctx: time.Hour,
			check: func(t *testing.T, err error) {
				unconfirmed(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			},
			after: unconfirmed,
		},
		"the session is closed": {
			before: func(d *desk, _ *concurrency.Permit) {
				d.client.Refuse()
				time.AfterFunc(time.Second, func() { _ = d.session.Close(gaveUp) })
			}, ctx: time.Hour,
			check: func(t *testing.T, err error) { unconfirmed(t, err); require.ErrorIs(t, err, concurrency.ErrClosed) },
			after: unconfirmed,
		},
		"the lease has ended before": {
			before: func(d *desk, p *concurrency.Permit) { d.client.Refuse(); ended(d.t, p) }, ctx: time.Hour,
			check: func(t *testing.T, err error) { require.ErrorIs(t, err, concurrency.ErrLost) },
			after: func(t *testing.T, err error) { require.ErrorIs(t, err, concurrency.ErrLost) },
		},
		"its key was deleted before": {
			before: func(d *desk, p *concurrency.Permit) { deleteQueue(d) }, ctx: time.Hour,
			check: func(t *testing.T, err error) { require.ErrorIs(t, err, concurrency.ErrLost) },
			after: func(t *testing.T, err error) { require.ErrorIs(t, err, concurrency.ErrLost) },
		},
		"its key was deleted before, and etcd is away": {
			before: func(d *desk, p *concurrency.Permit) {
				deleteQueue(d)
				d.slow("Txn", 1, etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true})
				time.AfterFunc(time.Millisecond, d.client.Refuse)
				time.AfterFunc(5*time.Second, d.client.Heal)
			}, ctx: 3 * time.Second,
			check: unconfirmed,
			after: func(t *testing.T, err error) { require.NoError(t, err, "a try was unanswered: it may have been ours") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				reported := d.traced(concurrency.SessionOptions{})
				defer time.Sleep(time.Minute) // a Close that has begun ends; a bubble cannot wait for its mutex
				p := d.acquire()
				tt.before(d, p)
				tt.check(t, p.Release(within(t, tt.ctx)))
				final := p.Release(within(t, time.Hour))
				tt.after(t, final)
				require.Equal(t, final, p.Release(gaveUp))
				require.EqualValues(t, 1, reported.lost.Load()+reported.released.Load()+reported.unconfirmed.Load(), "each permit ends once")
				require.Equal(t, errors.Is(final, concurrency.ErrLost), reported.lost.Load() == 1)
				require.Equal(t, errors.Is(final, concurrency.ErrUnconfirmed), reported.unconfirmed.Load() == 1)
			})
		})
	}
}

// deleteQueue deletes all requests by hand.
func deleteQueue(d *desk) {
	_, err := d.server.Client().Delete(d.t.Context(), root+gate+"/queue/", clientv3.WithPrefix())
	require.NoError(d.t, err)
}

// A11: a session whose permits were all released, though etcd has not confirmed it, is
// closed without a complaint that they were still held: revoking the lease frees them.
func TestCloseWithUnconfirmedReleases(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"all released": false, "one held": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				reported := d.traced(concurrency.SessionOptions{})
				sm := d.semaphore(2)
				p, err := sm.Acquire(t.Context())
				require.NoError(t, err)
				if held {
					_, err := sm.Acquire(t.Context())
					require.NoError(t, err)
				}
				d.slow("Txn", 1<<30, etcdfake.Fault{DropRequest: true, DropResponse: true})
				unconfirmed(t, p.Release(within(t, time.Second)))
				err = d.session.Close(within(t, time.Second))
				if held {
					require.ErrorContains(t, err, "had not ended")
				} else {
					require.NoError(t, err)
				}
				require.Empty(t, d.server.Leases())
				require.EqualValues(t, 1, reported.unconfirmed.Load())
				require.Equal(t, held, reported.lost.Load() == 1)
			})
		})
	}
}
