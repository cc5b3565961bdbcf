package idempotency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// durable is an etcd with fsync on, or the cluster of EMBEDTEST_ENDPOINTS.
func durable(b *testing.B) fixture {
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		return shared(b)
	}
	c := embedtest.Start(b, &embedtest.Options{Fsync: true, QuotaBytes: 8 << 30})
	return fixture{testkit.On(b, c)}
}

// BenchmarkRequest compares a new request, through Do, with a claim and its completion sent
// bare, by the same client, turn by turn in the same run, with fsync on. x-bare is the ratio
// of the medians to the same two Txns, with as many keys, conditions and bytes;
// x-bare-read-first is that to these after a read, without which a replay would cost a Raft
// entry; x-one-key is that to two Txns on one key, which could not distinguish a lost attempt from none. It also shows
// what a replay from etcd, one from the cache and a rejected duplicate cost. In flight is how
// many callers there are at once.
func BenchmarkRequest(b *testing.B) {
	value := make([]byte, 200)
	_, _ = rand.Read(value)
	for _, inFlight := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("%d in flight", inFlight), func(b *testing.B) {
			f := durable(b)
			opts := &idempotency.Options{CacheBytes: -1}
			in, cached := f.instance(nil, opts), f.instance(nil, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			lease, err := in.client.Grant(ctx, 86400)
			require.NoError(b, err)
			var names atomic.Int64
			do := func(st *idempotency.Store, id string, opts ...idempotency.Option) error {
				_, err := idempotency.Do(ctx, st, key(id), "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return value, nil }, opts...)
				return err
			}
			own, err := in.client.Grant(ctx, 86400) // as the session's
			require.NoError(b, err)
			fence := f.Root + "fence"
			_, err = in.client.Put(ctx, fence, "x", clientv3.WithLease(own.ID))
			require.NoError(b, err)
			txn := func(ifs []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op) (int64, error) {
				resp, err := in.client.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
				if err == nil && !resp.Succeeded {
					err = errors.New("a condition is not met")
				}
				if err != nil {
					return 0, err
				}
				return resp.Header.Revision, nil
			}
			next := func() string { return fmt.Sprintf("%sbare/%080d", f.Root, names.Add(1)) }
			working := string(make([]byte, 230))
			absent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
			txns := func(name string) error {
				rev, err := txn([]clientv3.Cmp{absent(name), clientv3.Compare(clientv3.CreateRevision(fence), ">", 0)},
					[]clientv3.Op{clientv3.OpPut(name, working, clientv3.WithLease(lease.ID))})
				if err != nil {
					return err
				}
				_, err = txn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", rev)},
					[]clientv3.Op{clientv3.OpPut(name, working+string(value), clientv3.WithLease(lease.ID))}, clientv3.OpGet(name))
				return err
			}
			bare := func(int64) error { return txns(next()) }
			readFirst := func(int64) error {
				name := next()
				if _, err := in.client.Get(ctx, name, clientv3.WithPrefix(), clientv3.WithSerializable()); err != nil {
					return err
				}
				return txns(name)
			}
			oneKey := func(int64) error {
				name := next()
				rev, err := txn([]clientv3.Cmp{absent(name)}, []clientv3.Op{clientv3.OpPut(name, working, clientv3.WithLease(lease.ID))}, clientv3.OpGet(name))
				if err != nil {
					return err
				}
				_, err = txn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", rev)}, []clientv3.Op{clientv3.OpPut(name, working+string(value), clientv3.WithLease(lease.ID))})
				return err
			}
			const known = 1000
			require.NoError(b, do(in.Store, "warm"))
			fill := sync.OnceFunc(func() {
				for n := range known {
					require.NoError(b, do(in.Store, fmt.Sprint("known", n)))
				}
				a, _, err := f.instance(nil, nil).Begin(ctx, key("busy"), "payload")
				require.NoError(b, err)
				b.Cleanup(func() { _ = a.Release(context.Background()) })
			})
			// run makes n calls, that many at once.
			run := func(b *testing.B, n int, call func(int64) error) time.Duration {
				var next atomic.Int64
				var wg sync.WaitGroup
				begun := time.Now()
				for range inFlight {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(n); i = next.Add(1) {
							if err := call(i); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(begun)
			}
			for name, opts := range map[string][]idempotency.Option{"new": nil, "likely new": {idempotency.LikelyNew()}} {
				anew := func(int64) error { return do(in.Store, fmt.Sprint("new", names.Add(1)), opts...) }
				b.Run(name, func(b *testing.B) {
					each := max(2*inFlight, 10)
					rounds := max(b.N/each, 9)
					var mine, base, one, look []time.Duration
					run(b, each, anew)
					entries := uint64(0)
					b.ResetTimer()
					for range rounds {
						base, one, look = append(base, run(b, each, bare)), append(one, run(b, each, oneKey)), append(look, run(b, each, readFirst))
						before := f.RaftIndex()
						mine = append(mine, run(b, each, anew))
						entries += f.RaftIndex() - before
					}
					b.StopTimer()
					for _, all := range [][]time.Duration{mine, base, one, look} {
						slices.Sort(all)
					}
					per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(each) }
					b.ReportMetric(per(mine[rounds/2]), "µs-median")
					b.ReportMetric(per(base[rounds/2]), "bare-µs-median")
					b.ReportMetric(float64(mine[rounds/2])/float64(base[rounds/2]), "x-bare")
					b.ReportMetric(float64(mine[rounds/2])/float64(look[rounds/2]), "x-bare-read-first")
					b.ReportMetric(float64(mine[rounds/2])/float64(one[rounds/2]), "x-one-key")
					b.ReportMetric(float64(entries)/float64(rounds*each), "raft-entries/op")
				})
			}
			for _, bm := range []struct {
				name string
				call func(n int64) error
			}{
				{"replay by read", func(n int64) error { return do(in.Store, fmt.Sprint("known", n%known)) }},
				{"replay from cache", func(n int64) error { return do(cached.Store, fmt.Sprint("known", n%known)) }},
				{"conflict", func(int64) error {
					if _, _, err := in.Begin(ctx, key("busy"), "payload", idempotency.Wait(0)); err == nil {
						return fmt.Errorf("an attempt")
					}
					return nil
				}},
			} {
				b.Run(bm.name, func(b *testing.B) {
					fill()
					run(b, known, bm.call)
					before := f.RaftIndex()
					b.ReportAllocs()
					b.ResetTimer()
					run(b, b.N, bm.call)
					b.StopTimer()
					b.ReportMetric(float64(f.RaftIndex()-before)/float64(b.N), "raft-entries/op")
				})
			}
		})
	}
}

// BenchmarkRecordBytes shows what a finished request takes in etcd's file, after compaction,
// by the size of its result: the record, its key, its place on a lease and in the pages of
// the file.
func BenchmarkRecordBytes(b *testing.B) {
	for _, size := range []int{0, 200, 2000} {
		b.Run(fmt.Sprintf("result of %d", size), func(b *testing.B) {
			f := own(b)
			in := f.instance(nil, &idempotency.Options{CacheBytes: -1})
			value := make([]byte, size)
			const many = 5000
			for range b.N {
				used := func() int64 {
					_, err := f.Compact(ctxT(b))
					require.NoError(b, err)
					var least int64
					// Compaction continues for a moment after its answer.
					for range 20 {
						time.Sleep(50 * time.Millisecond)
						st, err := f.Client().Status(ctxT(b), f.Endpoints()[0])
						require.NoError(b, err)
						if least == 0 || st.DbSizeInUse < least {
							least = st.DbSizeInUse
						}
					}
					return least
				}
				before := used()
				var n atomic.Int64
				var wg sync.WaitGroup
				for range 64 {
					wg.Go(func() {
						for i := n.Add(1); i <= many; i = n.Add(1) {
							a, _, err := in.Begin(ctxT(b), key(fmt.Sprint(i)), "payload")
							if err == nil {
								err = a.Commit(ctxT(b), value)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(used()-before)/many, "bytes/record")
				stored := 0
				for name, v := range f.Values("/idempotency/") {
					stored += len(name) + len(v)
				}
				b.ReportMetric(float64(stored)/many, "key+value")
			}
		})
	}
}

// BenchmarkExpiry lets 100,000 records expire at once, sixteen leases at a time as etcd does it,
// while a client writes: it shows the slowest of its writes, before and meanwhile, and
// how many of them took longer than 50 ms.
func BenchmarkExpiry(b *testing.B) {
	const many, atOnce = 100_000, 16
	for range b.N {
		f := own(b)
		in := f.instance(nil, &idempotency.Options{CacheBytes: -1, Retain: time.Hour, RetainUnknown: time.Hour})
		var n atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for i := n.Add(1); i <= many; i = n.Add(1) {
					a, _, err := in.Begin(b.Context(), key(fmt.Sprint(i)), "payload", idempotency.LikelyNew())
					if err == nil {
						err = a.Commit(b.Context(), []byte("result"))
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		leases, err := f.Client().Leases(ctxT(b))
		require.NoError(b, err)
		write := func() time.Duration {
			begun := time.Now()
			_, err := f.Client().Put(ctxT(b), f.Root+"other", "x")
			require.NoError(b, err)
			return time.Since(begun)
		}
		var before, during time.Duration
		for range 2000 {
			before = max(before, write())
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			var wg sync.WaitGroup
			slots := make(chan struct{}, atOnce)
			for _, l := range leases.Leases {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					if resp, err := f.Client().TimeToLive(ctxT(b), l.ID, clientv3.WithAttachedKeys()); err == nil && len(resp.Keys) > 10 {
						_ = f.ExpireLease(ctxT(b), l.ID)
					}
				})
			}
			wg.Wait()
		}()
		begun, writes, slow := time.Now(), 0, 0
		for running := true; running; {
			took := write()
			if writes++; took > 50*time.Millisecond {
				slow++
			}
			during = max(during, took)
			select {
			case <-gone:
				running = false
			default:
			}
		}
		b.ReportMetric(float64(before.Microseconds())/1000, "ms-slowest-before")
		b.ReportMetric(float64(during.Microseconds())/1000, "ms-slowest-during")
		b.ReportMetric(float64(slow), "above-50ms")
		b.ReportMetric(float64(writes), "writes")
		b.ReportMetric(time.Since(begun).Seconds(), "s-expiring")
		b.ReportMetric(float64(len(leases.Leases)), "leases")
	}
}
