package virtual

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// keeping returns a semaphore that keeps permits.
func (d *desk) keeping(limit int, keep time.Duration) *concurrency.Semaphore {
	d.t.Helper()
	sem, err := concurrency.NewSemaphore(d.session, queue, limit, &concurrency.SemaphoreOptions{Keep: keep})
	require.NoError(d.t, err)
	return sem
}

// get acquires at once.
func (d *desk) get(sem *concurrency.Semaphore, opts ...concurrency.AcquireOption) *concurrency.Permit {
	d.t.Helper()
	p, err := sem.Acquire(within(d.t, time.Millisecond), opts...)
	require.NoError(d.t, err)
	return p
}

// use acquires and releases at once.
func (d *desk) use(sem *concurrency.Semaphore, opts ...concurrency.AcquireOption) {
	d.t.Helper()
	require.NoError(d.t, d.get(sem, opts...).Release(d.t.Context()))
}

// warm has a semaphore keep a permit: the first one that it releases has it follow the queue.
func (d *desk) warm(sem *concurrency.Semaphore) {
	d.t.Helper()
	d.use(sem)
	synctest.Wait()
	d.use(sem)
	require.Equal(d.t, 1, d.held(), "the permit is kept")
}

// held returns how many requests are in etcd.
func (d *desk) held() int {
	d.t.Helper()
	st, err := d.semaphore(1).Status(within(d.t, time.Minute))
	require.NoError(d.t, err)
	return len(st.Holders) + len(st.Waiters)
}

// soonest waits in another process, and returns how long that took.
func (d *desk) soonest(opts ...concurrency.AcquireOption) <-chan time.Duration {
	took, begun := make(chan time.Duration, 1), time.Now()
	sem, err := concurrency.NewSemaphore(d.session, queue, 1, &concurrency.SemaphoreOptions{AdoptLimit: true})
	require.NoError(d.t, err)
	go func() {
		p, err := sem.Acquire(context.Background(), opts...)
		if err == nil {
			took <- time.Since(begun)
			_ = p.Release(context.Background())
		}
	}()
	return took
}

// A permit that is kept is acquired without a request to etcd. It is another permit for its
// caller: its context, its bound and its end are its own.
func TestKeptPermitIsAcquiredWithoutARequest(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		var requests atomic.Int64
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			requests.Add(1)
			return etcdfake.Fault{}
		})
		type key struct{}
		first, err := sem.Acquire(context.WithValue(t.Context(), key{}, "first"))
		require.NoError(t, err)
		require.Equal(t, "first", first.Context().Value(key{}))
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, first.Release(t.Context()), "again")
		second, err := sem.TryAcquire(t.Context(), concurrency.MaxHold(time.Second))
		require.NoError(t, err)
		require.ErrorIs(t, first.Err(), concurrency.ErrReleased)
		require.ErrorIs(t, context.Cause(first.Context()), concurrency.ErrReleased)
		require.NoError(t, second.Err())
		require.NoError(t, second.Context().Err())
		require.Nil(t, second.Context().Value(key{}))
		require.Zero(t, requests.Load())
		require.Equal(t, 1, d.held(), "Status shows it")
		begun := time.Now()
		ended(t, second)
		require.ErrorIs(t, second.Err(), concurrency.ErrTooLong)
		require.Equal(t, time.Second, time.Since(begun))
		require.ErrorIs(t, second.Release(t.Context()), concurrency.ErrLost)
		synctest.Wait()
		require.Zero(t, d.held())
		d.use(sem)
	})
}

// A call that finds an idle permit whose time has just passed gets another one, which is valid.
func TestKeptPermitBesideOneThatIsTooOld(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(2, 990*time.Millisecond)
		d.warm(sem) // idle permits are looked at each 25 ms from now on
		older := d.get(sem)
		time.Sleep(500 * time.Millisecond)
		younger := d.get(sem)
		time.Sleep(480 * time.Millisecond)
		require.NoError(t, older.Release(t.Context()))
		require.NoError(t, younger.Release(t.Context()))
		require.Equal(t, 2, d.held(), "both are kept")
		time.Sleep(12 * time.Millisecond)
		require.NoError(t, d.get(sem).Err())
		time.Sleep(25 * time.Millisecond) // which one is found first is not said
		require.Equal(t, 1, d.held(), "the older one is released")
	})
}

// W16: a try that is refused because of an idle permit writes nothing, so its process is not heard.
// The permit is idle for 100 ms at most, and its time since the grant is bounded by Keep.
func TestTrapW16RefusedTriesAreNotHeard(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1].semaphore(1)
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		released := time.Now()
		for {
			p, err := other.TryAcquire(t.Context())
			if err == nil {
				require.NoError(t, p.Release(t.Context()))
				break
			}
			require.ErrorIs(t, err, concurrency.ErrFull)
			time.Sleep(time.Millisecond)
		}
		require.Greater(t, time.Since(released), 50*time.Millisecond)
		require.LessOrEqual(t, time.Since(released), 100*time.Millisecond)

		d.warm(sem)
		for range 100 { // in use again and again: it is not idle
			time.Sleep(40 * time.Millisecond)
			before := d.server.Revision()
			d.use(sem)
			require.Equal(t, before, d.server.Revision())
		}
	})
}

// W19: one time counts for a key, from its grant, and no caller starts it again.
func TestTrapW19OneTimePerKey(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Second)
		d.use(sem)
		synctest.Wait()
		granted, before := time.Now(), d.server.Revision()
		d.use(sem)
		require.Equal(t, before+1, d.server.Revision(), "granted, and kept")
		for time.Since(granted) < 950*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
			d.use(sem)
		}
		require.Equal(t, before+1, d.server.Revision())
		time.Sleep(50 * time.Millisecond)
		d.use(sem)
		require.Greater(t, d.server.Revision(), before+1, "released to etcd")
	})
}

// W19: a permit with an ID, a note or another weight is not kept, and a call for one gets none that
// is.
func TestTrapW19OnlyPlainPermits(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]concurrency.AcquireOption{
		"ID": concurrency.ID("i"), "Note": concurrency.Note("n"), "Weight": concurrency.Weight(2),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				sem := d.keeping(4, time.Hour)
				d.use(sem)
				synctest.Wait()
				d.use(sem, opt)
				require.Zero(t, d.held(), "it does not give")
				d.use(sem)
				require.Equal(t, 1, d.held())
				p := d.get(sem, opt)
				require.Equal(t, 2, d.held(), "it does not receive")
				require.NoError(t, p.Release(t.Context()))
				require.Equal(t, 1, d.held())
			})
		})
	}
}

// W17: where the watch brings nothing, kept permits are handed out only for a second after etcd has
// confirmed that no request waits, however busy the process is.
func TestTrapW17StalledWatch(t *testing.T) {
	t.Parallel()
	for name, readsToo := range map[string]bool{"reads are answered": false, "reads are not answered": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d := on[0]
				sem := d.keeping(1, time.Hour)
				d.warm(sem)
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if m.Method == "Watch" && m.Response {
						return etcdfake.Fault{ResponseDelay: time.Hour}
					}
					if r, ok := m.Body.(*pb.TxnRequest); ok && readsToo && len(r.Compare) == 0 {
						return etcdfake.Fault{DropRequest: true, DropResponse: true}
					}
					return etcdfake.Fault{}
				})
				took := on[1].soonest()
				for begun := time.Now(); time.Since(begun) < 2*time.Second; time.Sleep(5 * time.Millisecond) {
					p, err := sem.Acquire(within(t, time.Millisecond))
					if err == nil {
						require.NoError(t, p.Release(t.Context()))
					}
				}
				require.LessOrEqual(t, <-took, time.Second+10*time.Millisecond)
			})
		})
	}
}

// W18: a permit whose Token or Guard was asked for is not kept: its next holder would have the same
// key. Asked for afterwards, they show nothing by which a former holder's write could pass.
func TestTrapW18TokenAndGuard(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		for name, ask := range map[string]func(*concurrency.Permit){
			"Token": func(p *concurrency.Permit) { require.Positive(t, p.Token()) },
			"Guard": func(p *concurrency.Permit) { p.Guard() },
		} {
			d.warm(sem)
			p := d.get(sem)
			ask(p)
			require.NoError(t, p.Release(t.Context()))
			require.Zero(t, d.held(), name)
		}
		d.warm(sem)
		former := d.get(sem)
		require.NoError(t, former.Release(t.Context()))
		next := d.get(sem)
		passes := func(p *concurrency.Permit) bool {
			resp, err := d.client.Txn(t.Context()).If(p.Guard()).Then(clientv3.OpPut("effect", "")).Commit()
			require.NoError(t, err)
			return resp.Succeeded
		}
		require.Zero(t, former.Token())
		require.False(t, passes(former))
		require.True(t, passes(next))
		require.Positive(t, next.Token())
		require.NoError(t, next.Release(t.Context()))
		require.False(t, passes(next))
		require.False(t, passes(former))
	})
}

// W18: where Token races Release, one of them comes first. A permit that shows its token is not kept.
func TestTrapW18TokenRacesRelease(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		for i := range 200 {
			d.warm(sem)
			p := d.get(sem)
			var token int64
			calls := []func(){func() { token = p.Token() }, func() { _ = p.Release(context.Background()) }}
			var both sync.WaitGroup
			both.Go(calls[i%2]) // on one processor it mostly runs last
			both.Go(calls[1-i%2])
			both.Wait()
			require.Equal(t, token == 0, d.held() == 1)
			time.Sleep(time.Second)
		}
	})
}

// L7: any request that waits ends keeping at once, whatever its weight and whosever it is. While it
// waits, released permits go to etcd.
func TestTrapL7WaitersSuspendKeep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on  int
		opt concurrency.AcquireOption
	}{
		"another process":             {1, concurrency.Weight(1)},
		"another process, heavy":      {1, concurrency.Weight(2)},
		"the same process, heavy":     {0, concurrency.Weight(2)},
		"the same process, with a ID": {0, concurrency.ID("i")},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d := on[0]
				sem := d.keeping(2, time.Hour)
				d.warm(sem)
				a, b := d.get(sem), d.get(sem)
				synctest.Wait()
				took := on[c.on].soonest(c.opt)
				synctest.Wait()
				require.NoError(t, a.Release(t.Context()))
				require.NoError(t, b.Release(t.Context()))
				require.Zero(t, <-took, "in use when it came")
				synctest.Wait()
				time.Sleep(5 * time.Second)

				d.warm(sem)
				a, b = d.get(sem), d.get(sem)
				require.NoError(t, a.Release(t.Context()))
				require.NoError(t, b.Release(t.Context()))
				require.Equal(t, 2, d.held())
				opt := c.opt
				if name == "another process" || c.opt == nil {
					opt = concurrency.Weight(1)
				}
				require.Zero(t, <-on[c.on].soonest(opt, concurrency.Wait(time.Second)), "idle when it came")
			})
		})
	}
}

// W20 and N11: each keeper would hear every request of a total. Keys of a limiter keep nothing, and a
// request that waits ends keeping in the one queue that a semaphore has.
func TestTrapW20LimitersKeepNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		for name, opts := range map[string]*concurrency.KeyedLimiterOptions{"plain": nil, "total": {Total: 3}} {
			lim, err := concurrency.NewKeyedLimiter(d.session, name, 2, opts)
			require.NoError(t, err)
			for range 3 {
				d.use(lim.Key("tenant"))
				synctest.Wait()
				st, err := lim.Key("tenant").Status(t.Context())
				require.NoError(t, err)
				require.Empty(t, st.Holders)
			}
		}
	})
}

// A limit that is lowered below what is in use, and a paused semaphore, end keeping at once: "limit 0,
// then nobody holds" is a barrier for kept permits as well.
func TestLoweredLimitEndsKeep(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, control := on[0], on[1].semaphore(3)
		sem := d.keeping(3, time.Hour)
		d.warm(sem)
		held := []*concurrency.Permit{d.get(sem), d.get(sem), d.get(sem)}
		for _, p := range held {
			require.NoError(t, p.Release(t.Context()))
		}
		require.Equal(t, 3, d.held())
		require.NoError(t, control.SetLimit(t.Context(), 3))
		synctest.Wait()
		require.Equal(t, 3, d.held())
		a, b := d.get(sem), d.get(sem)
		require.NoError(t, control.SetLimit(t.Context(), 0))
		synctest.Wait()
		require.Equal(t, 2, d.held(), "the idle one is released")
		require.NoError(t, a.Release(t.Context()))
		require.NoError(t, b.Release(t.Context()))
		require.Zero(t, d.held())
		_, err := sem.TryAcquire(t.Context())
		require.ErrorIs(t, err, concurrency.ErrFull)
	})
}

// EvictToken ends a kept permit: with an error for its holder, and without one where it is idle.
func TestEvictedKeptPermit(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, operator := on[0], on[1].semaphore(1)
		sem := d.keeping(1, time.Hour)
		token := func() int64 {
			st, err := operator.Status(t.Context())
			require.NoError(t, err)
			return st.Holders[0].Token
		}
		d.warm(sem)
		p := d.get(sem)
		require.NoError(t, operator.EvictToken(t.Context(), token(), "enough"))
		ended(t, p)
		require.ErrorIs(t, p.Err(), concurrency.ErrEvicted)
		require.ErrorIs(t, p.Release(t.Context()), concurrency.ErrEvicted)
		synctest.Wait()

		d.warm(sem)
		require.NoError(t, operator.EvictToken(t.Context(), token(), "enough"))
		synctest.Wait()
		before := d.server.Revision()
		d.use(sem)
		require.Greater(t, d.server.Revision(), before, "the idle one is not handed out")
	})
}

// Close releases kept permits and does not wait for them. From its beginning on none is handed out.
func TestCloseReleasesKeptPermits(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(2, time.Hour)
		d.warm(sem)
		p := d.get(sem)
		d.use(sem) // one is idle, one in use
		closed := make(chan error, 1)
		go func() { closed <- d.session.Close(context.Background()) }()
		synctest.Wait()
		_, err := sem.Acquire(t.Context())
		require.ErrorIs(t, err, concurrency.ErrClosed)
		select {
		case <-closed:
			require.FailNow(t, "Close does not wait for the holder")
		default:
		}
		require.NoError(t, p.Release(t.Context()))
		require.NoError(t, <-closed)
		for _, key := range d.server.Keys(prefix) {
			require.True(t, strings.HasSuffix(key, "/limit"), key)
		}
	})
}

// A kept permit is handed out only while the lease is trusted, and its holder loses it with the
// session, as any other.
func TestKeptPermitEndsWithItsSession(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		p := d.get(sem)
		require.NoError(t, p.Release(t.Context()))
		p = d.get(sem)
		next := on[1].waiter()
		d.client.Stall()
		ended(t, p)
		require.ErrorIs(t, p.Err(), concurrency.ErrLost)
		require.ErrorIs(t, p.Release(t.Context()), concurrency.ErrLost)
		_, err := sem.Acquire(within(t, time.Second))
		require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		lost := time.Now()
		require.GreaterOrEqual(t, (<-next).Sub(lost), margin-2*time.Second)
		d.client.Heal()
	})
}
