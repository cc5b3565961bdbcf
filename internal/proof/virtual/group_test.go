package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// How the requests of one process in many queues share Raft entries: design note 23. Each Txn takes
// 20 ms here, so what is asked for in one moment comes in a known order: the first few are sent at
// once, all others together when these have been answered.
const (
	far   = 20 * time.Millisecond
	few   = 8  // Txns that are under way before others wait
	names = 40 // queues
)

// writes records the Txns of a process.
type writes struct {
	mu    sync.Mutex
	sent  [][]*pb.TxnRequest // the parts of each
	wrong []string           // what breaks a rule
	meet  func(parts []*pb.TxnRequest) etcdfake.Fault
}

// slowly has the Txns of a process take their time, and records them. meet may be nil.
func (d *desk) slowly(meet func(parts []*pb.TxnRequest) etcdfake.Fault) *writes {
	w := &writes{meet: meet}
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		txn, ok := m.Body.(*pb.TxnRequest)
		if !ok {
			return etcdfake.Fault{}
		}
		fate := w.add(txn)
		fate.ResponseDelay += far
		return fate
	})
	return w
}

func (w *writes) add(txn *pb.TxnRequest) etcdfake.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := partsOf(txn)
	w.sent = append(w.sent, parts)
	queues, puts, deletes := map[string]bool{}, 0, 0
	for _, p := range parts {
		put := p.Success[0].GetRequestPut()
		if put == nil {
			deletes++
			continue
		}
		puts++
		of, _, _ := strings.Cut(string(put.Key), "/queue/")
		if queues[of] {
			w.wrong = append(w.wrong, "two requests of one queue in a Txn: "+of)
		}
		queues[of] = true
	}
	if puts > 0 && deletes > 0 {
		w.wrong = append(w.wrong, "deletes beside puts in a Txn")
	}
	if w.meet == nil {
		return etcdfake.Fault{}
	}
	return w.meet(parts)
}

// partsOf returns what callers have asked for: a Txn whose first operation is one consists of others.
func partsOf(txn *pb.TxnRequest) (parts []*pb.TxnRequest) {
	if len(txn.Success) == 0 || txn.Success[0].GetRequestTxn() == nil {
		return []*pb.TxnRequest{txn}
	}
	for _, op := range txn.Success {
		parts = append(parts, partsOf(op.GetRequestTxn())...)
	}
	return parts
}

// take returns how many parts each Txn had since the last call.
func (w *writes) take() (parts []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, txn := range w.sent {
		parts = append(parts, len(txn))
	}
	w.sent = nil
	return parts
}

func (w *writes) keepsTheRules(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.wrong)
}

// shares returns how many parts each Txn has if that many writes are asked for at once.
func shares(n int) (parts []int) {
	for range few {
		parts = append(parts, 1)
	}
	return append(parts, n-few)
}

func (d *desk) named(i, limit int) *concurrency.Semaphore {
	d.t.Helper()
	sem, err := concurrency.NewSemaphore(d.session, fmt.Sprint("s", i), limit, nil)
	require.NoError(d.t, err)
	return sem
}

// stored has the limits of all queues stored.
func (d *desk) stored(limit int) {
	d.t.Helper()
	for i := range names {
		p, err := d.named(i, limit).Acquire(d.t.Context())
		require.NoError(d.t, err)
		require.NoError(d.t, p.Release(d.t.Context()))
	}
}

// together calls fn for n numbers at the same moment, and returns how long that takes.
func together(n int, fn func(i int)) time.Duration {
	var all sync.WaitGroup
	begun := time.Now()
	for i := range n {
		all.Go(func() { fn(i) })
	}
	all.Wait()
	return time.Since(begun)
}

// holdsAll acquires a permit of each queue, all at the same moment.
func (d *desk) holdsAll(limit int) []*concurrency.Permit {
	d.t.Helper()
	permits := make([]*concurrency.Permit, names)
	together(names, func(i int) {
		var err error
		if permits[i], err = d.named(i, limit).Acquire(context.Background()); err != nil {
			d.t.Error(err)
		}
	})
	if d.t.Failed() {
		d.t.FailNow()
	}
	return permits
}

// twins returns two of the permits that one Txn has granted, and their numbers.
func twins(t *testing.T, permits []*concurrency.Permit) (a, b int) {
	t.Helper()
	by := map[int64]int{}
	for i, p := range permits {
		if first, ok := by[p.Token()]; ok {
			return first, i
		}
		by[p.Token()] = i
	}
	require.FailNow(t, "no two permits have one token")
	return 0, 0
}

func (d *desk) nothingLeft() {
	d.t.Helper()
	time.Sleep(time.Second)
	for _, key := range d.server.Keys(root) {
		require.NotContains(d.t, key, "/queue/")
		require.NotContains(d.t, key, "/notice/")
	}
}

// What one process asks for in many queues at the same moment takes a few Raft entries, and so does
// what it releases. One caller waits for nobody, and neither do the callers of one queue.
func TestQueuesShareRaftEntries(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		d.stored(names)
		w := d.slowly(nil)
		begun := time.Now()
		permits := d.holdsAll(names)
		require.Equal(t, shares(names), w.take())
		require.Equal(t, 2*far, time.Since(begun))
		release := func(i int) {
			if err := permits[i].Release(context.Background()); err != nil {
				t.Error(err)
			}
		}
		require.Equal(t, 2*far, together(names, release))
		require.Equal(t, shares(names), w.take())

		one := func(i int) {
			p, err := d.named(0, names).Acquire(context.Background())
			if err != nil {
				t.Error(err)
			}
			permits[i] = p
		}
		require.Equal(t, far, together(1, one), "a lone caller")
		release(0)
		w.take()
		require.Equal(t, far, together(names, one), "callers of one queue")
		require.Len(t, w.take(), names)
		require.Equal(t, 2*far, together(names, release), "the releases of one queue")
		require.Equal(t, shares(names), w.take())
		w.keepsTheRules(t)
		d.nothingLeft()
	})
}

// S1: two callers of each queue, whose limit is 1. No two requests of a queue are in one Txn, and no
// two permits of it are held at once, whatever becomes of the answers.
func TestTrapS1QueuesOfABatch(t *testing.T) {
	t.Parallel()
	for name, meet := range map[string]func(n int) etcdfake.Fault{
		"all is well": func(int) etcdfake.Fault { return etcdfake.Fault{} },
		"answers lost": func(n int) etcdfake.Fault {
			return every(n, etcdfake.Fault{DropResponse: true, Err: etcdfake.ErrUnavailable})
		},
		"requests lost": func(n int) etcdfake.Fault {
			return every(n, etcdfake.Fault{DropRequest: true, Err: etcdfake.ErrUnavailable})
		},
		"requests late": func(n int) etcdfake.Fault {
			return every(n, etcdfake.Fault{RequestDelay: time.Second, Err: etcdfake.ErrUnavailable})
		},
		"requests twice": func(n int) etcdfake.Fault { return every(n, etcdfake.Fault{Duplicate: time.Second}) },
		"etcd is too busy": func(n int) etcdfake.Fault {
			return every(n, etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCRequestTooManyRequests})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				d.stored(1)
				sent := 0
				w := d.slowly(func([]*pb.TxnRequest) etcdfake.Fault { sent++; return meet(sent) })
				var mu sync.Mutex
				holders := map[int]int{}
				count := func(i, by int) {
					mu.Lock()
					defer mu.Unlock()
					if holders[i] += by; holders[i] > 1 {
						t.Errorf("two hold queue %d", i)
					}
				}
				together(2*names, func(i int) {
					for range 3 {
						p, err := d.named(i%names, 1).Acquire(context.Background())
						if err != nil {
							t.Error(err)
							return
						}
						count(i%names, 1)
						time.Sleep(far / 4)
						count(i%names, -1)
						if err := p.Release(context.Background()); err != nil {
							t.Error(err)
						}
					}
				})
				w.keepsTheRules(t)
				w.mu.Lock()
				w.meet = nil
				w.mu.Unlock()
				time.Sleep(2 * ttl) // late copies are swept
				d.nothingLeft()
			})
		})
	}
}

// every is a fate that one of three Txns meets.
func every(n int, f etcdfake.Fault) etcdfake.Fault {
	if n%3 != 0 {
		return etcdfake.Fault{}
	}
	return f
}

// W22: a part that etcd refuses fails its whole Txn. The parts are sent singly then, at once, and only
// the one that is refused fails.
func TestTrapW22PartsAreSentSingly(t *testing.T) {
	t.Parallel()
	const bad = "/s39/"
	for name, refused := range map[string]error{
		"denied":    rpctypes.ErrGRPCPermissionDenied,
		"too large": rpctypes.ErrGRPCRequestTooLarge,
		"too many":  rpctypes.ErrGRPCTooManyOps,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				d.stored(1)
				w := d.slowly(func(parts []*pb.TxnRequest) etcdfake.Fault {
					for _, p := range parts {
						if put := p.Success[0].GetRequestPut(); put != nil && strings.Contains(string(put.Key), bad) {
							return etcdfake.Fault{DropRequest: true, Err: refused}
						}
					}
					return etcdfake.Fault{}
				})
				begun := time.Now()
				together(names, func(i int) {
					if i == names-1 {
						time.Sleep(far / 2) // so that it is one of those that wait
					}
					p, err := d.named(i, 1).Acquire(context.Background())
					if took := time.Since(begun); took > 3*far { // with others, and then alone
						t.Errorf("queue %d: %v", i, took)
					}
					if i == names-1 {
						if err == nil {
							t.Error("the one that is refused has a permit")
						}
						return
					}
					if err != nil {
						t.Error(err)
					} else if err := p.Release(context.Background()); err != nil {
						t.Error(err)
					}
				})
				w.keepsTheRules(t)
				d.nothingLeft()
			})
		})
	}
}

// L3: etcd is out of space, and refuses all that puts. What is released at the same moment as others
// are asked for does not share that: each release passes the first time.
func TestTrapL3ReleasesBesideAcquisitions(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		d.stored(2)
		permits := d.holdsAll(2)
		w := d.slowly(func(parts []*pb.TxnRequest) etcdfake.Fault {
			for _, p := range parts {
				for _, op := range p.Success {
					if op.GetRequestPut() != nil {
						return etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCNoSpace}
					}
				}
			}
			return etcdfake.Fault{}
		})
		begun := time.Now()
		together(2*names, func(i int) {
			if i%2 == 0 {
				if _, err := d.named(i/2, 2).Acquire(context.Background()); err == nil {
					t.Error("a permit without space")
				}
				return
			}
			if err := permits[i/2].Release(context.Background()); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took > 2*far {
				t.Errorf("a release took %v", took)
			}
		})
		w.keepsTheRules(t)
		d.nothingLeft()
	})
}

// W21: permits of one Txn have one token. What others leave for one of them reaches that one.
func TestTrapW21EqualTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deaf bool // the session hears of no notice
		both bool
	}{
		"one is evicted":   {},
		"both are evicted": {both: true},
		"one, unheard":     {deaf: true},
		"both, unheard":    {deaf: true, both: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d, operator := on[0], on[1]
				d.stored(1)
				d.slowly(nil)
				permits := d.holdsAll(1)
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					return etcdfake.Fault{DropResponse: c.deaf && m.Response && m.Method == "Watch"}
				})
				a, b := twins(t, permits)
				gone := []int{a}
				if c.both {
					gone = append(gone, b)
				}
				for _, i := range gone {
					evicted(d, operator, permits[i].Token(), i)
				}
				time.Sleep(time.Second)
				for i, p := range permits {
					err := p.Err()
					if c.deaf {
						require.NoError(t, err)
						err = p.Release(t.Context())
					}
					if i == a || c.both && i == b {
						require.ErrorIs(t, err, concurrency.ErrEvicted)
						require.ErrorContains(t, err, fmt.Sprintf("reason %d.", i))
						continue
					}
					require.NoError(t, err, "another one holds")
					require.NoError(t, p.Release(t.Context()))
				}
				d.client.Inject(nil)
				time.Sleep(2 * ttl)
				for i := range names { // its slot is free again, and the key is nobody's
					p, err := d.named(i, 1).TryAcquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, p.Release(t.Context()))
				}
				d.nothingLeft()
			})
		})
	}
}

// W21: two requests of one Txn, one of which holds and one waits. One of them is evicted: the other one does as before.
func TestTrapW21EqualTokensOfAWaiter(t *testing.T) {
	t.Parallel()
	for name, waiter := range map[string]bool{"the waiter is evicted": true, "the holder is evicted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d, operator := on[0], on[1]
				d.stored(1)
				theirs := make([]*concurrency.Permit, names)
				for i := 1; i < names; i += 2 {
					var err error
					theirs[i], err = operator.named(i, 1).Acquire(t.Context())
					require.NoError(t, err)
				}
				d.slowly(nil)
				permits, errs := make([]*concurrency.Permit, names), make([]error, names)
				var free, waiting sync.WaitGroup
				for i := range names {
					all := &free
					if i%2 == 1 {
						all = &waiting
					}
					all.Go(func() { permits[i], errs[i] = d.named(i, 1).Acquire(context.Background()) })
				}
				time.Sleep(time.Second)
				free.Wait()
				holder, waits := -1, -1
				by := map[int64]int{}
				for i := 0; i < names; i += 2 {
					by[permits[i].Token()] = i
				}
				var tokens [names]int64
				for i := 1; i < names; i += 2 {
					tokens[i] = d.request(i).CreateRevision
					if h, ok := by[tokens[i]]; ok {
						holder, waits = h, i
					}
				}
				require.GreaterOrEqual(t, holder, 0, "no two requests have one token")
				gone := holder
				if waiter {
					gone = waits
				}
				evicted(d, operator, tokens[waits], gone)
				time.Sleep(time.Second)
				for i := 1; i < names; i += 2 {
					require.NoError(t, theirs[i].Release(t.Context()))
				}
				waiting.Wait()
				for i := range names {
					switch {
					case i == gone && waiter:
						require.ErrorIs(t, errs[i], concurrency.ErrEvicted)
					case i == gone:
						require.NoError(t, errs[i])
						require.ErrorIs(t, permits[i].Err(), concurrency.ErrEvicted)
					default:
						require.NoError(t, errs[i])
						require.NoError(t, permits[i].Err(), "another one is evicted")
						require.NoError(t, permits[i].Release(t.Context()))
					}
				}
				d.nothingLeft()
			})
		})
	}
}

// request returns the key of the session's request in a queue.
func (d *desk) request(i int) *mvccpb.KeyValue {
	d.t.Helper()
	resp, err := d.client.Get(d.t.Context(), root+fmt.Sprintf("semaphore/s%d/queue/", i), clientv3.WithPrefix())
	require.NoError(d.t, err)
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), fmt.Sprintf("%016x", int64(d.session.Lease()))) {
			return kv
		}
	}
	require.FailNow(d.t, "no request", "s%d", i)
	return nil
}

func evicted(d, operator *desk, token int64, i int) {
	d.t.Helper()
	require.NoError(d.t, operator.named(i, 1).EvictToken(d.t.Context(), token, fmt.Sprintf("reason %d.", i)))
}
