package virtual

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// asks are the calls that ask for a permit, and whether they wait in the queue.
var asks = map[string]struct {
	call  func(ctx context.Context, d *desk) error
	waits bool
	wait  time.Duration // option Wait; 0: ctx's deadline bounds it
}{
	"Acquire, Wait": {waits: true, wait: 8 * time.Second, call: func(ctx context.Context, d *desk) error {
		_, err := d.semaphore(1).Acquire(ctx, concurrency.Wait(8*time.Second))
		return err
	}},
	"Acquire, ctx": {waits: true, call: func(ctx context.Context, d *desk) error {
		_, err := d.semaphore(1).Acquire(ctx)
		return err
	}},
	"Acquire, MaxWaiters and Wait": {waits: true, wait: 8 * time.Second, call: func(ctx context.Context, d *desk) error {
		_, err := d.semaphore(1).Acquire(ctx, concurrency.MaxWaiters(5), concurrency.Wait(8*time.Second))
		return err
	}},
	"TryAcquire, ctx": {call: func(ctx context.Context, d *desk) error {
		_, err := d.semaphore(1).TryAcquire(ctx)
		return err
	}},
	"Lock, Wait": {waits: true, wait: 8 * time.Second, call: func(ctx context.Context, d *desk) error {
		_, err := mutexOf(d).Lock(ctx, concurrency.Wait(8*time.Second))
		return err
	}},
	"TryLock, ctx": {call: func(ctx context.Context, d *desk) error {
		_, err := mutexOf(d).TryLock(ctx)
		return err
	}},
	"Campaign, Wait": {waits: true, wait: 8 * time.Second, call: func(ctx context.Context, d *desk) error {
		_, err := electionOf(d).Campaign(ctx, concurrency.Wait(8*time.Second))
		return err
	}},
	"Campaign, ctx": {waits: true, call: func(ctx context.Context, d *desk) error {
		_, err := electionOf(d).Campaign(ctx)
		return err
	}},
}

func mutexOf(d *desk) *concurrency.Mutex {
	mu, err := concurrency.NewMutex(d.session, queue)
	require.NoError(d.t, err)
	return mu
}

func electionOf(d *desk) *concurrency.Election {
	el, err := concurrency.NewElection(d.session, queue)
	require.NoError(d.t, err)
	return el
}

// hold takes the semaphore, the mutex and the term.
func (d *desk) hold() {
	d.acquire()
	_, err := mutexOf(d).Lock(d.t.Context())
	require.NoError(d.t, err)
	_, err = electionOf(d).Campaign(d.t.Context())
	require.NoError(d.t, err)
}

var aways = map[string]func(*etcdfake.Client){"cut": (*etcdfake.Client).Cut, "refuses": (*etcdfake.Client).Refuse, "swallows": (*etcdfake.Client).Stall}

// A13: a wait that ends while etcd does not answer says so, with since when, the last
// answer and the last error; it does not look like a full queue. It is the end of ctx only
// if ctx has ended.
func TestOutageIsNotContention(t *testing.T) {
	t.Parallel()
	for name, ask := range asks {
		for how, away := range aways {
			for when, from := range map[string]time.Duration{"from the start": 0, "while it waits": 3500 * time.Millisecond, "late": 7500 * time.Millisecond} {
				if from > 0 && !ask.waits {
					continue // a try has its answer long before
				}
				t.Run(name+", etcd "+how+" "+when, func(t *testing.T) {
					bubble(t, 2, func(t *testing.T, on []*desk) {
						on[0].hold()
						d := on[1]
						time.Sleep(time.Second)
						begun := time.Now()
						if from == 0 {
							away(d.client)
						} else {
							time.AfterFunc(from, func() { away(d.client) })
						}
						ctx := context.Background()
						if ask.wait == 0 {
							ctx = within(t, 8*time.Second)
						}
						err := ask.call(ctx, d)
						require.Equal(t, 8*time.Second, time.Since(begun))
						if when == "late" && how == "swallows" && ask.wait > 0 {
							// Half a second of silence says nothing yet.
							require.ErrorIs(t, err, concurrency.ErrFull)
							return
						}
						if when == "late" && how == "swallows" {
							require.ErrorIs(t, err, context.DeadlineExceeded)
							return
						}
						var u *concurrency.UnavailableError
						require.ErrorAs(t, err, &u)
						require.ErrorIs(t, err, concurrency.ErrUnavailable)
						require.NotErrorIs(t, err, concurrency.ErrFull)
						if ask.wait > 0 {
							require.NotErrorIs(t, err, context.DeadlineExceeded)
						} else {
							require.ErrorIs(t, err, context.DeadlineExceeded)
						}
						require.Regexp(t, `^(acquire|lock|campaign in) "q": `, err.Error())
						require.WithinRange(t, u.Since, begun.Add(from), begun.Add(max(from, 7*time.Second)))
						require.WithinRange(t, u.LastAnswer, begun.Add(-time.Second), begun.Add(from))
						require.Equal(t, how != "swallows", u.Err != nil, "%v", u.Err)
						if from > 0 {
							require.Equal(t, &concurrency.FullError{Name: queue, Limit: 1, Used: 1}, u.Seen)
						} else {
							require.Nil(t, u.Seen)
						}
						t.Log(err)
						// When etcd is back, so is the queue.
						d.client.Heal()
					})
				})
			}
		}
	}
}

// A13: where nothing but the waits would notice that etcd has gone, they ask, a second
// before they end: one read for all of them. A wait in which etcd has just answered asks
// nothing.
func TestWaitAsksBeforeItEnds(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"etcd is gone": true, "etcd answers": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				on[0].hold()
				d := on[1]
				d.traced(concurrency.SessionOptions{TTL: 300 * time.Second}) // it renews after 100 s
				var asked atomic.Int64
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if r, ok := m.Body.(*etcdserverpb.RangeRequest); ok && strings.Contains(string(r.Key), "/alive") {
						asked.Add(1)
					}
					return etcdfake.Fault{}
				})
				sm := d.semaphore(1)
				const callers = 20
				errs := make(chan error, callers)
				for range callers {
					go func() {
						_, err := sm.Acquire(context.Background(), concurrency.Wait(8*time.Second))
						errs <- err
					}()
				}
				time.Sleep(3 * time.Second)
				if gone {
					d.client.Stall()
				}
				for range callers {
					if err := <-errs; gone {
						require.ErrorIs(t, err, concurrency.ErrUnavailable)
					} else {
						require.ErrorIs(t, err, concurrency.ErrFull)
					}
				}
				require.EqualValues(t, 1, asked.Load())
				if gone {
					return
				}
				_, err := sm.Acquire(context.Background(), concurrency.Wait(900*time.Millisecond))
				require.ErrorIs(t, err, concurrency.ErrFull)
				require.EqualValues(t, 1, asked.Load(), "its request was answered less than a second ago")
			})
		})
	}
}

// A13: with an etcd that answers, the ends of waits are what they were: a full queue, and
// ctx's error alone. A wait that is too short for an answer is not ctx's end.
func TestContentionIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				on[0].hold()
				d := on[1]
				time.Sleep(4 * time.Second)
				ctx := within(t, 8*time.Second)
				if ask.wait > 0 {
					ctx = context.Background()
				}
				err := ask.call(ctx, d)
				require.NotErrorIs(t, err, concurrency.ErrUnavailable)
				if ask.wait > 0 || !ask.waits {
					require.ErrorIs(t, err, concurrency.ErrFull)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
		})
	}
	t.Run("too short for an answer", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			d.acquire()
			d.slow("Txn", 1, etcdfake.Fault{ResponseDelay: 100 * time.Millisecond})
			_, err := d.semaphore(1).Acquire(context.Background(), concurrency.Wait(50*time.Millisecond))
			require.ErrorIs(t, err, concurrency.ErrUnavailable)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, concurrency.ErrFull)
			_, err = d.semaphore(1).Acquire(within(t, 50*time.Millisecond))
			require.NotErrorIs(t, err, concurrency.ErrUnavailable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
}

// A call that etcd stops answering says in which queue it waited: that of its key or of the total.
func TestUnavailableSaysWhichQueue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, total int
		level        concurrency.Level
		text         string
	}{
		"its key":         {1, 2, concurrency.LevelKey, "the queue of the key then had "},
		"the total":       {2, 1, concurrency.LevelTotal, "the queue of the total then had "},
		"without a total": {1, 0, concurrency.LevelKey, "the queue of the key then had "},
		"a semaphore":     {1, -1, "", "the queue then had "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				sem := d.semaphore(1)
				if c.total >= 0 {
					sem = d.tenant(c.limit, c.total)
				}
				p := d.hold1(sem)
				const wait = 4 * time.Second
				begun, answers := time.Now(), make(chan error, 1)
				go func() {
					_, err := sem.Acquire(within(t, time.Minute), concurrency.Wait(wait))
					answers <- err
				}()
				synctest.Wait() // the session has seen the queue
				d.client.Refuse()
				err := came(t, answers, "the end of Wait")
				require.Equal(t, wait, time.Since(begun))
				d.client.Heal()
				u, ok := errors.AsType[*concurrency.UnavailableError](err)
				require.True(t, ok, "%v", err)
				require.NotNil(t, u.Seen)
				require.Equal(t, c.level, u.Seen.Level)
				require.ErrorContains(t, err, c.text)
				require.NoError(t, p.Release(t.Context()))
			})
		})
	}
}
