package virtual

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// away has all requests and answers of a process take so long, events as long as six of them, and each of the
// next few removals as long as eight.
func (d *desk) away(oneWay time.Duration, removals int64) {
	var slow atomic.Int64
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if _, event := m.Body.(*pb.WatchResponse); event {
			return etcdfake.Fault{ResponseDelay: 6 * oneWay}
		}
		if m.Response {
			return etcdfake.Fault{}
		}
		if r, ok := m.Body.(*pb.TxnRequest); ok && len(r.Success) > 0 && r.Success[0].GetRequestDeleteRange() != nil && slow.Add(1) <= removals {
			return etcdfake.Fault{RequestDelay: 8 * oneWay, ResponseDelay: oneWay}
		}
		return etcdfake.Fault{RequestDelay: oneWay, ResponseDelay: oneWay}
	})
}

// tries has so many tries succeed, and releases what they get.
func (d *desk) tries(sem *concurrency.Semaphore, n int, when time.Duration) {
	d.t.Helper()
	var got []*concurrency.Permit
	for range n {
		p, err := sem.TryAcquire(within(d.t, time.Minute))
		require.NoError(d.t, err, "after %v", when)
		got = append(got, p)
	}
	for _, p := range got {
		require.NoError(d.t, p.Release(d.t.Context()))
	}
}

// A try is not refused because of requests that its own process is removing: permits that have stayed
// for long enough (A146), a request whose caller has given up, and one that no call in the local queue needs (A147).
func TestTryBesideOwnRemovals(t *testing.T) {
	t.Parallel()
	const oneWay = 5 * time.Millisecond
	acquired := func(t *testing.T, sem *concurrency.Semaphore, n int) (all []*concurrency.Permit) {
		for range n {
			p, err := sem.Acquire(within(t, time.Minute))
			require.NoError(t, err)
			all = append(all, p)
		}
		return all
	}
	released := func(t *testing.T, all []*concurrency.Permit) {
		for _, p := range all {
			require.NoError(t, p.Release(t.Context()))
		}
	}
	for name, c := range map[string]struct {
		limit int
		make  func(d *desk, limit int) *concurrency.Semaphore
		waits bool // a call behind the permits, which gives up
		slow  int64
	}{
		"kept permits":              {2, func(d *desk, limit int) *concurrency.Semaphore { return d.keeping(limit, time.Minute) }, false, 2},
		"a call that gave up":       {2, func(d *desk, limit int) *concurrency.Semaphore { return d.semaphore(limit) }, true, 1},
		"a call in the local queue": {1, func(d *desk, limit int) *concurrency.Semaphore { return d.passing(limit, 90*time.Millisecond) }, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for after := time.Duration(0); after <= 150*time.Millisecond; after += 3 * time.Millisecond {
				bubble(t, 1, func(t *testing.T, on []*desk) {
					d := on[0]
					sem := c.make(d, c.limit)
					d.away(oneWay, 0)
					all := acquired(t, sem, c.limit)
					if !c.waits { // the first releases have it follow the queue
						released(t, all)
						time.Sleep(50 * time.Millisecond)
						all = acquired(t, sem, c.limit)
					}
					d.away(oneWay, c.slow)
					if c.waits {
						_, err := sem.Acquire(within(t, time.Minute), concurrency.Wait(30*time.Millisecond))
						require.ErrorIs(t, err, concurrency.ErrFull)
					}
					released(t, all)
					time.Sleep(after)
					d.tries(sem, c.limit, after)
				})
			}
		})
	}
}

// A key of a limiter with a total is paused while one of its requests is admitted there, and its process
// does not know that yet: it gets no permit until the key is resumed (A145).
func TestPausedKeyWhileItsRequestIsAdmitted(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		const late = 200 * time.Millisecond
		limiter := func(d *desk) *concurrency.KeyedLimiter {
			lim, err := concurrency.NewKeyedLimiter(d.session, "llm", 1, &concurrency.KeyedLimiterOptions{Total: 2})
			require.NoError(t, err)
			return lim
		}
		here, there := limiter(on[0]), limiter(on[1])
		p, err := here.Key("a").Acquire(within(t, time.Minute))
		require.NoError(t, err)
		on[1].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if _, event := m.Body.(*pb.WatchResponse); event {
				return etcdfake.Fault{ResponseDelay: late}
			}
			return etcdfake.Fault{}
		})
		granted := make(chan error, 1)
		go func() {
			p, err := there.Key("a").Acquire(within(t, time.Hour))
			if err == nil {
				err = p.Release(t.Context())
			}
			granted <- err
		}()
		time.Sleep(4 * late) // it waits, and follows its queue
		require.NoError(t, p.Release(t.Context()))
		require.NoError(t, here.Key("a").SetLimit(t.Context(), 0))
		st, err := here.Key("a").Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, st.Holders)
		time.Sleep(10 * late)
		require.Empty(t, granted, "its key is paused")
		require.NoError(t, here.Key("a").SetLimit(t.Context(), 1))
		require.NoError(t, <-granted)
	})
}
