package idempotency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// apart is a store on an etcd server that is a process of its own, with fsync on.
func apart(b *testing.B) (*procs.Cluster, *clientv3.Client, *idempotency.Store) {
	if runtime.GOOS != "linux" {
		b.Skip("the CPU time of another process is read from /proc")
	}
	binary, err := os.Executable()
	require.NoError(b, err)
	etcd, err := procs.Start(ctxT(b), procs.Options{Binary: binary, Dir: b.TempDir(), Fsync: true, Args: []string{fmt.Sprintf("--quota-backend-bytes=%d", 8<<30)}, Env: []string{asServer + "=yes"}})
	require.NoError(b, err)
	b.Cleanup(etcd.Close)
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	sess, err := concurrency.NewSession(b.Context(), client, "bench", nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = sess.Close(context.Background()) })
	store, err := idempotency.NewStore(sess, "store", &idempotency.Options{CacheBytes: -1})
	require.NoError(b, err)
	return etcd, client, store
}

// BenchmarkPath shows what a new request costs the process that makes it: CPU time, allocations and bytes for each request,
// with 512 in flight, beside the floor: claim and outcome on one key, sent by the bare client as nested Txns of up to 64
// parts by eight senders, with no fence, no fingerprint and no context. The CPU time of the server is printed, too. The ways
// take turns; each figure is the median of the rounds.
func BenchmarkPath(b *testing.B) {
	etcd, client, store := apart(b)
	value := make([]byte, 200)
	_, _ = rand.Read(value)
	var names atomic.Int64
	do := func(opts ...idempotency.Option) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := idempotency.Do(ctx, store, key(fmt.Sprint(names.Add(1))), "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return value, nil }, opts...)
			return err
		}
	}
	floor := newFloor(b, client)
	ways := []struct {
		name string
		call func(context.Context) error
	}{
		{"floor", func(context.Context) error { return floor.request(names.Add(1)) }},
		{"new", do()},
		{"likely-new", do(idempotency.LikelyNew())},
	}
	const rounds, inFlight = 9, 512
	each := max(b.N/rounds, 4*inFlight)
	took := make([][]spent, len(ways))
	b.ResetTimer()
	for round := range rounds + 1 { // the first one warms up
		for turn := range ways {
			n := (turn + round) % len(ways)
			before, begun := spentBy(b, etcd.Member(0).PID()), time.Now()
			require.NoError(b, byCallers(inFlight, each, ways[n].call))
			if round > 0 {
				took[n] = append(took[n], spentBy(b, etcd.Member(0).PID()).less(before, time.Since(begun), each))
			}
		}
	}
	b.StopTimer()
	for n, way := range ways {
		b.ReportMetric(median(took[n], func(s spent) float64 { return s.client }), way.name+"-client-µs/op")
		b.ReportMetric(median(took[n], func(s spent) float64 { return s.server }), way.name+"-server-µs/op")
		b.ReportMetric(median(took[n], func(s spent) float64 { return s.client + s.server }), way.name+"-sum-µs/op")
		b.ReportMetric(median(took[n], func(s spent) float64 { return s.allocs }), way.name+"-allocs/op")
		b.ReportMetric(median(took[n], func(s spent) float64 { return s.bytes }), way.name+"-B/op")
		b.ReportMetric(median(took[n], func(s spent) float64 { return 1e6 / s.took }), way.name+"/s")
	}
}

// spent is what both processes have used: µs of CPU time, and allocations of this one.
type spent struct{ client, server, allocs, bytes, took float64 }

func spentBy(b *testing.B, server int) spent {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return spent{client: us(cpuOf(b, os.Getpid())), server: us(cpuOf(b, server)), allocs: float64(m.Mallocs), bytes: float64(m.TotalAlloc)}
}

func (s spent) less(before spent, took time.Duration, each int) spent {
	n := float64(each)
	return spent{(s.client - before.client) / n, (s.server - before.server) / n, (s.allocs - before.allocs) / n, (s.bytes - before.bytes) / n, float64(took.Microseconds()) / n}
}

func median(of []spent, what func(spent) float64) float64 {
	all := make([]float64, len(of))
	for i, s := range of {
		all[i] = what(s)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// byCallers makes n calls, by so many callers at once, each with a ctx of its own.
func byCallers(callers, n int, call func(context.Context) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for next.Add(1) <= int64(n) && errs[i] == nil {
				errs[i] = call(ctx)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// floor sends claims and outcomes as parts of nested Txns.
type floor struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	value  string
	parts  chan *floorPart
}

type floorPart struct {
	op  clientv3.Op
	mod chan int64 // 0 if its condition was not met
}

func newFloor(b *testing.B, client *clientv3.Client) *floor {
	resp, err := client.Grant(ctxT(b), 86400)
	require.NoError(b, err)
	f := &floor{client: client, lease: resp.ID, value: string(make([]byte, 330)), parts: make(chan *floorPart, 4096)}
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(f.send)
	}
	b.Cleanup(func() { close(f.parts); senders.Wait() })
	return f
}

func (f *floor) send() {
	for first := range f.parts {
		parts := []*floorPart{first}
		for more := true; more && len(parts) < 64; {
			select {
			case p, ok := <-f.parts:
				if more = ok; ok {
					parts = append(parts, p)
				}
			default:
				more = false
			}
		}
		ops := make([]clientv3.Op, len(parts))
		for i, p := range parts {
			ops[i] = p.op
		}
		resp, err := f.client.Txn(context.Background()).Then(ops...).Commit()
		for i, p := range parts {
			mod := int64(0)
			if err == nil && resp.Responses[i].GetResponseTxn().Succeeded {
				mod = resp.Header.Revision
			}
			p.mod <- mod
		}
	}
}

func (f *floor) request(n int64) error {
	name, p := fmt.Sprintf("floor/%075d", n), &floorPart{mod: make(chan int64, 1)}
	put := clientv3.OpPut(name, f.value, clientv3.WithLease(f.lease))
	for mod := int64(0); ; {
		p.op = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", mod)}, []clientv3.Op{put}, nil)
		f.parts <- p
		first := mod == 0
		if mod = <-p.mod; mod == 0 {
			return errors.New("a condition is not met")
		}
		if !first {
			return nil
		}
	}
}

// BenchmarkInFlight shows what an attempt in progress keeps in the heap of its process: of 10,000.
func BenchmarkInFlight(b *testing.B) {
	const many = 10_000
	heap := func() float64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	_, _, store := apart(b)
	attempts := make([]*idempotency.Attempt, many)
	for range b.N {
		before := heap()
		var next atomic.Int64
		next.Store(-1)
		require.NoError(b, byCallers(64, many, func(ctx context.Context) (err error) {
			n := next.Add(1)
			attempts[n], _, err = store.Begin(ctx, key(fmt.Sprint("begun ", n)), "payload")
			return err
		}))
		b.ReportMetric((heap()-before)/many, "heap-B/attempt")
		next.Store(-1)
		require.NoError(b, byCallers(64, many, func(ctx context.Context) error { return attempts[next.Add(1)].Release(ctx) }))
	}
}
