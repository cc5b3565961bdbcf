package virtual

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// swept is the time within which a session removes what belongs to none of its requests.
const swept = ttl * 3 / 2

// sentTwice has etcd's client send the next Txn once more by itself: the first copy is answered as if
// a proxy had reset it, and arrives so much later. It returns how often a Txn has been sent since.
func (d *desk) sentTwice(late time.Duration) (sent func() int64) {
	var txns atomic.Int64
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Method != "Txn" || txns.Add(1) > 1 {
			return etcdfake.Fault{}
		}
		return etcdfake.Fault{RequestDelay: late, Err: grpcstatus.Error(codes.Canceled, "reset by a proxy")}
	})
	return txns.Load
}

// ask acquires on a semaphore of two.
func (d *desk) ask(opts ...concurrency.AcquireOption) (*concurrency.Permit, error) {
	return d.semaphore(2).Acquire(within(d.t, time.Minute), opts...)
}

func (d *desk) requests() []string { return d.server.Keys(root + gate + "/queue/") }
func (d *desk) ids() []string      { return d.server.Keys(root + "request-id/" + gate + "/") }

// came waits for what must come, bounded as in ended.
func came[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "it does not come", what)
	}
	return v
}

// L1: an acquire that etcd's client has sent twice. One copy was answered, and its
// permit released, when the other arrives: a request that no caller made. The session
// removes it, with its ID, and spares those of other requests.
func TestTrapL1AnsweredAndUnderWay(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		kept, err := d.ask(concurrency.ID("kept"))
		require.NoError(t, err)
		const ofTheUser = root + "of-the-user"
		_, err = d.client.Put(t.Context(), ofTheUser, "", clientv3.WithLease(d.session.Lease()))
		require.NoError(t, err)
		const late = time.Second
		sent := d.sentTwice(late)
		p, err := d.ask(concurrency.ID("job"))
		require.NoError(t, err)
		require.EqualValues(t, 2, sent())
		require.NoError(t, p.Release(t.Context()))
		require.Len(t, d.requests(), 1)
		time.Sleep(late + 1)
		require.Len(t, d.requests(), 2, "the other copy has arrived")
		require.Len(t, d.ids(), 2)
		time.Sleep(swept)
		require.Len(t, d.requests(), 1)
		require.Len(t, d.ids(), 1)
		again, err := other.ask(concurrency.ID("job"))
		require.NoError(t, err, "the ID and the permit are free again")
		require.NoError(t, again.Release(t.Context()))
		require.NoError(t, kept.Err())
		require.Len(t, d.requests(), 1)
		require.Len(t, d.ids(), 1)
		require.Len(t, d.server.Keys(ofTheUser), 1)
		require.NoError(t, kept.Release(t.Context()))
	})
}

// L1: one copy is refused, because the ID is in use, and the other arrives when it
// is not any more.
func TestTrapL1RefusedAndUnderWay(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		p, err := other.ask(concurrency.ID("job"))
		require.NoError(t, err)
		known, err := d.ask() // the limit is known
		require.NoError(t, err)
		require.NoError(t, known.Release(t.Context()))
		const late = time.Second
		sent := d.sentTwice(late)
		_, err = d.ask(concurrency.ID("job"))
		var held *concurrency.HeldError
		require.ErrorAs(t, err, &held)
		require.GreaterOrEqual(t, sent(), int64(2))
		require.NoError(t, p.Release(t.Context()))
		require.Empty(t, d.requests())
		time.Sleep(late + 1)
		require.Len(t, d.requests(), 1, "the other copy has arrived")
		time.Sleep(swept)
		require.Empty(t, d.requests())
		require.Empty(t, d.ids())
	})
}

// Requests of many queues share a Txn, and so a revision. A late copy of such a Txn is more than one Txn can
// remove.
func TestSweepOfALargeTxn(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		space, err := keyspace.New(prefix, "test")
		require.NoError(t, err)
		const own = 10
		var puts [2][]clientv3.Op
		for i := range 150 {
			key := space.Queue(keyspace.Semaphore, queue).Slot(keyspace.Slot{Lease: int64(d.session.Lease()), Number: own + i, Weight: 1})
			puts[i%2] = append(puts[i%2], clientv3.OpPut(key, "", clientv3.WithLease(d.session.Lease())))
		}
		_, err = d.client.Txn(t.Context()).Then(clientv3.OpTxn(nil, puts[0], nil), clientv3.OpTxn(nil, puts[1], nil)).Commit()
		require.NoError(t, err)
		require.Len(t, d.requests(), 150)
		time.Sleep(swept)
		require.Empty(t, d.requests())
		require.NoError(t, d.acquire().Release(t.Context()))
	})
}

// What is being made and released all the time is never swept, however long each message is on its way.
func TestSweepSparesTheLiving(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		const sweeps, callers = 40, 4
		d := on[0]
		sem := d.semaphore(callers)
		var begun atomic.Int64
		until := time.Now().Add(2 * sweeps * swept)
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method == "LeaseTimeToLive" {
				begun.Add(1)
			}
			return etcdfake.Fault{RequestDelay: rand.N(500 * time.Millisecond), ResponseDelay: rand.N(500 * time.Millisecond)}
		})
		defer d.client.Inject(nil)
		rounds := 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for begun.Load() <= sweeps && time.Now().Before(until) && !t.Failed() {
					p, err := sem.Acquire(within(t, time.Minute), concurrency.ID(fmt.Sprint(caller)))
					if err == nil {
						time.Sleep(rand.N(3 * time.Second)) // some are held as long as a removal takes
						err = p.Release(t.Context())
					}
					if err != nil {
						t.Errorf("caller %d: %v", caller, err)
					}
					mu.Lock()
					rounds++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.Greater(t, begun.Load(), int64(sweeps))
		require.Greater(t, rounds, 10*sweeps)
	})
}

// The sweep reads a name that was used and is free, and then it is in use again.
func TestSweepSparesASuccessor(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		p := d.acquire()
		slot := d.requests()[0]
		listed, read := make(chan struct{}, 1), make(chan struct{}, 1)
		var once sync.Once
		d.client.Inject(func(m etcdfake.Message) (fate etcdfake.Fault) {
			r, reads := m.Body.(*pb.RangeRequest)
			switch {
			case m.Method == "LeaseTimeToLive":
				once.Do(func() {
					listed <- struct{}{}
					fate.ResponseDelay = time.Second
				})
			case reads && string(r.Key) == slot:
				read <- struct{}{}
				fate.RequestDelay = time.Second
			}
			return fate
		})
		came(t, listed, "a sweep")
		synctest.Wait() // etcd has listed the keys, and its answer is on its way
		require.NoError(t, p.Release(t.Context()))
		came(t, read, "it reads the key")
		p = d.acquire()
		require.Equal(t, []string{slot}, d.requests())
		time.Sleep(time.Second + 1)
		synctest.Wait()
		require.Equal(t, []string{slot}, d.requests())
		require.NoError(t, p.Err())
		require.NoError(t, p.Release(t.Context()))
	})
}
