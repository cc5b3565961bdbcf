package virtual

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// What happens when, exactly. Sessions here have a TTL of 15 s and a margin of 3 s, so
// they renew every 5 s and give a renewal 3 s to be answered.
const (
	ttl    = 15 * time.Second
	margin = 3 * time.Second
	renews = 5 * time.Second
)

// desk is one process in a bubble, for tests by hand.
type desk struct {
	t       *testing.T
	server  *etcdfake.Server
	client  *etcdfake.Client
	session *concurrency.Session
	begun   time.Time // when the session was
}

// bubble runs f with some processes on one etcd. All is closed afterwards, with what it
// takes.
func bubble(t *testing.T, processes int, f func(t *testing.T, on []*desk)) {
	t.Helper()
	bubbleOn(t, processes, f)
}

func bubbleOn(t *testing.T, processes int, f func(t *testing.T, on []*desk), opts ...etcdfake.Option) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, server *etcdfake.Server) {
		var on []*desk
		for range processes {
			client := server.NewClient()
			d := &desk{t: t, server: server, client: client, begun: time.Now()}
			var err error
			d.session, err = concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{TTL: ttl, Margin: margin, Prefix: prefix})
			require.NoError(t, err)
			defer d.close(time.Second)
			on = append(on, d)
		}
		f(t, on)
	}, opts...)
}

func (d *desk) close(wait time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	begun := time.Now()
	_ = d.session.Close(ctx)
	return time.Since(begun)
}

func (d *desk) semaphore(limit int) *concurrency.Semaphore {
	sem, err := concurrency.NewSemaphore(d.session, queue, limit, nil)
	require.NoError(d.t, err)
	return sem
}

func (d *desk) acquire() *concurrency.Permit {
	d.t.Helper()
	p, err := d.semaphore(1).Acquire(within(d.t, time.Minute))
	require.NoError(d.t, err)
	return p
}

// waiter acquires in a goroutine, and reports when it has its permit.
func (d *desk) waiter() <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		defer close(at)
		if p, err := d.semaphore(1).Acquire(within(d.t, 3*time.Hour)); err == nil {
			at <- time.Now()
			_ = p.Release(context.Background())
		}
	}()
	synctest.Wait()
	return at
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// ended waits until a permit is lost. It is bounded, since in a bubble with a session in
// it nothing else ends a wait for what does not come.
func ended(t *testing.T, p *concurrency.Permit) {
	t.Helper()
	select {
	case <-p.Context().Done():
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "the permit does not end")
	}
}

// slow has the next n messages of a method meet a fate: on a stream, answers if it is
// one of answers.
func (d *desk) slow(method string, n int, fate etcdfake.Fault) {
	ofAnswers := method == "LeaseKeepAlive" && (fate.ResponseDelay > 0 || fate.DropResponse)
	var met atomic.Int64
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Method != method || m.Response != ofAnswers || met.Add(1) > int64(n) {
			return etcdfake.Fault{}
		}
		return fate
	})
}

// F02: a process from which nothing gets out for an hour: stopped, or cut off. Its
// permit ends a margin before etcd gives it to the next, and nothing that it has sent
// meanwhile does any harm when it gets there after all.
func TestHourOfSilence(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]bool{"network on resume": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				victim, other := on[0], on[1]
				time.Sleep(7 * time.Second) // renewed 5 s after the beginning
				permit := victim.acquire()
				next := other.waiter()
				victim.client.Stall()
				sent := victim.begun.Add(renews)
				ended(t, permit)
				require.Equal(t, sent.Add(ttl-margin), time.Now())
				require.ErrorIs(t, permit.Err(), concurrency.ErrLost)
				require.Equal(t, sent.Add(ttl), <-next)
				time.Sleep(time.Hour)
				if !back {
					victim.client.Refuse()
					begun := time.Now()
					_, err := victim.semaphore(1).Acquire(within(t, 10*time.Minute))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, 10*time.Minute, time.Since(begun))
					return
				}
				held := other.acquire()
				victim.client.Heal()
				time.Sleep(time.Minute)
				require.NoError(t, held.Err())
				require.NotZero(t, victim.session.Lease())
				waiting := victim.waiter()
				begun := time.Now()
				require.NoError(t, held.Release(t.Context()))
				require.Equal(t, begun, <-waiting)
			})
		})
	}
}

// G5: a crashed holder's request is deleted between a TTL and half a second more (15 s to
// 15.5 s by default) after its last renewal reached etcd, which looks for expired leases every
// half second. The next request is admitted at that moment.
func TestDeadHolderBlocksForATTLAndHalfASecond(t *testing.T) {
	t.Parallel()
	const look = 500 * time.Millisecond
	for late, more := range map[time.Duration]time.Duration{
		0:                      0,
		time.Nanosecond:        look - time.Nanosecond,
		300 * time.Millisecond: 200 * time.Millisecond,
		look:                   0,
	} {
		t.Run(late.String(), func(t *testing.T) {
			bubbleOn(t, 2, func(t *testing.T, on []*desk) {
				victim, other := on[0], on[1]
				victim.slow("LeaseKeepAlive", 10, etcdfake.Fault{RequestDelay: late})
				time.Sleep(7 * time.Second) // renewed 5 s after the beginning
				victim.acquire()
				next := other.waiter()
				victim.client.Stall()
				reached := victim.begun.Add(renews + late)
				require.Equal(t, ttl+more, (<-next).Sub(reached))
			}, etcdfake.ExpireEvery(look))
		})
	}
}

// F01, S10: however late a renewal or a grant is answered, the deadline counts from its
// sending.
func TestDeadlineIsCountedFromSending(t *testing.T) {
	t.Parallel()
	t.Run("renewal", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			time.Sleep(time.Second)
			d.slow("LeaseKeepAlive", 1, etcdfake.Fault{ResponseDelay: 1400 * time.Millisecond})
			permit := d.acquire()
			time.Sleep(5400*time.Millisecond + 1) // sent 5 s after the beginning, answered 1.4 s later
			d.client.Stall()
			require.Equal(t, d.begun.Add(renews+ttl-margin), permit.Deadline())
			ended(t, permit)
			require.Equal(t, d.begun.Add(renews+ttl-margin), time.Now())
		})
	})
	t.Run("grant", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			d.slow("LeaseGrant", 1, etcdfake.Fault{ResponseDelay: 4 * time.Second})
			d.server.Expire(d.session.Lease())
			lost := time.Now()
			synctest.Wait()
			time.Sleep(4*time.Second + 1)
			require.NotZero(t, d.session.Lease())
			d.slow("LeaseKeepAlive", 1<<30, etcdfake.Fault{DropResponse: true})
			require.WithinRange(t, d.acquire().Deadline(), lost.Add(ttl-margin), lost.Add(4*time.Second+ttl-margin))
		})
	})
}

// Answers to renewals that are late cost nothing: those that are later than laneTimeout, because
// other streams are tried meanwhile, and if all are so late, because late answers count.
func TestLateRenewals(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		late  time.Duration
		times int
	}{
		"within laneTimeout": {1400 * time.Millisecond, 2},
		"beyond":             {4 * time.Second, 2},
		"always":             {5900 * time.Millisecond, 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				permit, lease := on[0].acquire(), on[0].session.Lease()
				on[0].slow("LeaseKeepAlive", how.times, etcdfake.Fault{ResponseDelay: how.late})
				time.Sleep(time.Hour)
				require.NoError(t, permit.Err())
				require.Equal(t, lease, on[0].session.Lease())
			})
		})
	}
}

// What is tried again waits longer each time: from about 10 ms to about a second, half
// as long or half as long again by chance.
func TestRetriesBackOff(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, permit := on[0], on[0].acquire()
		var at []time.Time
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method != "Txn" {
				return etcdfake.Fault{}
			}
			if at = append(at, time.Now()); len(at) > 12 {
				return etcdfake.Fault{}
			}
			return etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true}
		})
		require.NoError(t, permit.Release(t.Context()))
		require.Len(t, at, 13)
		pause := 10 * time.Millisecond
		for i := range 12 {
			waited := at[i+1].Sub(at[i])
			require.GreaterOrEqual(t, waited, pause/2)
			require.Less(t, waited, pause*3/2)
			pause = min(2*pause, 1280*time.Millisecond)
		}
	})
}

// F30, S10: the answer of an acquire comes after its session has lost the lease. It is no
// permit, the call queues anew on the next lease, and nothing of the first one is left.
func TestSessionLostDuringAcquire(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, old := on[0], on[0].session.Lease()
		d.semaphore(1)
		on[1].acquire().Release(t.Context()) // the limit is stored
		d.slow("Txn", 1, etcdfake.Fault{ResponseDelay: 4 * time.Second})
		at := d.waiter()
		require.Len(t, on[0].server.Keys(root+gate+"/queue/"), 1)
		require.True(t, d.server.Expire(old))
		require.True(t, (<-at).Before(d.begun.Add(5*time.Second)))
		require.NotEqual(t, old, d.session.Lease())
		time.Sleep(time.Minute)
		require.Empty(t, d.server.Keys(root+gate+"/queue/"))
	})
}

// F16: however etcd is away, Close returns two seconds after its ctx or the last holder.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*desk){
		"here":    func(*desk) {},
		"stalled": func(d *desk) { d.client.Stall() },
		"cut":     func(d *desk) { d.client.Refuse() },
		"no leader": func(d *desk) {
			d.server.SetLeader(false)
		},
		"mute": func(d *desk) {
			d.client.Inject(func(etcdfake.Message) etcdfake.Fault { return etcdfake.Fault{DropResponse: true} })
		},
	} {
		for holder, held := range map[string]bool{"holding": true, "idle": false} {
			t.Run(name+", "+holder, func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, on []*desk) {
					want := time.Duration(0)
					if held {
						on[0].acquire()
						want = 4 * time.Second
					}
					if name != "here" {
						want += 2 * time.Second
					}
					away(on[0])
					require.Equal(t, want, on[0].close(4*time.Second))
					// What it left goes with its lease.
					on[0].server.SetLeader(true)
					time.Sleep(ttl)
					require.Empty(t, on[0].server.Keys(root+"session"))
				})
			})
		}
	}
}

// T6: history is discarded while a waiter's watch is away. It lists anew and is
// served at once when it is its turn.
func TestCompactionUnderAWaiter(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		permit := on[0].acquire()
		at := on[1].waiter()
		on[1].client.Refuse()
		require.NoError(t, permit.Release(t.Context()))
		on[0].server.Compact()
		time.Sleep(time.Second)
		require.Empty(t, at)
		mended := time.Now()
		on[1].client.Heal()
		require.WithinDuration(t, mended, <-at, 2*time.Second)
	})
}

// F26: a release is answered, and a copy of it comes much later, when the slot has its
// next request: that one exists.
func TestLateCopyOfARelease(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, permit := on[0], on[0].acquire()
		d.slow("Txn", 1, etcdfake.Fault{Duplicate: time.Hour})
		require.NoError(t, permit.Release(t.Context()))
		next := d.acquire()
		slot := d.server.Keys(root + gate + "/queue/")
		time.Sleep(2 * time.Hour)
		require.NoError(t, next.Err())
		require.Equal(t, slot, d.server.Keys(root+gate+"/queue/"))
	})
}

// L1: copies of an acquire come an hour after its caller gave up.
func TestLateCopyOfAnAcquire(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]etcdfake.Fault{
		"held up":            {RequestDelay: time.Hour},
		"failed and held up": {Err: etcdfake.ErrUnavailable, RequestDelay: time.Hour},
		"overtaken":          {RequestDelay: 10 * time.Millisecond, Duplicate: 5 * time.Millisecond},
		"doubled":            {Duplicate: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				d.acquire().Release(t.Context())
				d.slow("Txn", 1, fate)
				p, err := d.semaphore(1).Acquire(within(t, time.Second))
				if err == nil {
					require.NoError(t, p.Release(t.Context()))
				}
				time.Sleep(59 * time.Minute)
				require.Empty(t, d.server.Keys(root+gate+"/queue/"))
				time.Sleep(2 * time.Minute)
				require.Empty(t, d.server.Keys(root+gate+"/queue/"))
			})
		})
	}
}

// L3: "no space" says nothing of what was applied: an acquire that gets it leaves
// nothing.
func TestNoSpaceLeavesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		d.acquire().Release(t.Context())
		d.slow("Txn", 1, etcdfake.Fault{Err: rpctypes.ErrGRPCNoSpace})
		_, err := d.semaphore(1).Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		time.Sleep(time.Second)
		require.Empty(t, d.server.Keys(root+gate+"/queue/"))
	})
}

// A10: a machine that was stopped as a whole, with all of its clocks (a virtual machine
// that was paused), trusts its permit until it learns better: with the first answer of etcd,
// or at the deadline by its own clocks.
func TestPausedMachine(t *testing.T) {
	for name, answered := range map[string]bool{"etcd answers": true, "etcd cannot be reached": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				p := on[0].acquire()
				time.Sleep(time.Second)
				on[0].client.Stall() // all of its messages, and its clocks: it sees no time pass
				on[0].server.ShiftClock(ttl + time.Second)
				next := on[1].waiter()
				require.NotZero(t, <-next)
				require.NoError(t, p.Err(), "the other one had the permit")
				require.NoError(t, p.Context().Err())
				continued := time.Now()
				if answered {
					on[0].client.Heal()
				}
				ended(t, p)
				require.ErrorIs(t, p.Err(), concurrency.ErrLost)
				if answered {
					require.LessOrEqual(t, time.Since(continued), renews)
				} else {
					require.LessOrEqual(t, time.Since(on[0].begun), 2*ttl)
					on[0].client.Heal()
				}
			})
		})
	}
}
