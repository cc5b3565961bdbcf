package schedlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	upstream "go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// BenchmarkTick counts what one tick of a job that takes no time costs a fleet of eight: the
// Raft entries, the requests of all of them, and how often the job started. Beside it, in
// the same run, two patterns that are in use: a lease for each lock (ShedLock's provider
// for etcd), and a session for each tick with a TryLock. All come to a tick within
// 16 ms, as timers do.
func BenchmarkTick(b *testing.B) {
	const instances, apart = 8, 2 * time.Millisecond
	type fleet struct {
		clients []*embedtest.Client
		// try makes one instance try one tick; it calls start if it may.
		try func(ctx context.Context, i, n int, start func()) error
	}
	for _, bm := range []struct {
		name string
		make func(b *testing.B, f fixture) fleet
	}{
		{"schedlock", func(b *testing.B, f fixture) fleet {
			var fl fleet
			var all []instance
			for range instances {
				in := f.instance(nil, nil)
				all, fl.clients = append(all, in), append(fl.clients, in.client)
			}
			for _, in := range all {
				require.Eventually(b, func() bool { return len(in.Clocks()) == instances-1 }, soon, 5*time.Millisecond)
			}
			fl.try = func(ctx context.Context, i, n int, start func()) error {
				_, err := all[i].Do(ctx, "job", func(context.Context, *schedlock.Run) error { start(); return nil },
					schedlock.Tick(anHourAgo.Add(time.Duration(n)*10*time.Millisecond)))
				return err
			}
			return fl
		}},
		{"lease per lock", func(b *testing.B, f fixture) fleet {
			var fl fleet
			for range instances {
				fl.clients = append(fl.clients, f.NewClient(b, nil))
			}
			fl.try = func(ctx context.Context, i, _ int, start func()) error {
				c := fl.clients[i]
				lease, err := c.Grant(ctx, 60)
				if err != nil {
					return err
				}
				key := f.Root + "lock"
				resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "=", 0)).
					Then(clientv3.OpPut(key, "me", clientv3.WithLease(lease.ID))).Else(clientv3.OpGet(key)).Commit()
				if err == nil && resp.Succeeded {
					start()
				}
				_, revoked := c.Revoke(ctx, lease.ID)
				return errors.Join(err, revoked)
			}
			return fl
		}},
		{"session and TryLock", func(b *testing.B, f fixture) fleet {
			var fl fleet
			for range instances {
				fl.clients = append(fl.clients, f.NewClient(b, nil))
			}
			fl.try = func(ctx context.Context, i, _ int, start func()) error {
				s, err := upstream.NewSession(fl.clients[i].Client, upstream.WithContext(ctx))
				if err != nil {
					return err
				}
				m := upstream.NewMutex(s, f.Root+"lock")
				if err = m.TryLock(ctx); err == nil {
					start()
					err = m.Unlock(ctx)
				} else if errors.Is(err, upstream.ErrLocked) {
					err = nil
				}
				return errors.Join(err, s.Close())
			}
			return fl
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			f := own(b)
			fl := bm.make(b, f)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			var mu sync.Mutex
			starts := 0
			round := func(n int) {
				var wg sync.WaitGroup
				for i := range instances {
					wg.Go(func() {
						time.Sleep(time.Duration((i+n)%instances) * apart)
						if err := fl.try(ctx, i, n, func() { mu.Lock(); starts++; mu.Unlock() }); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			round(0) // the settings
			starts = 0
			for _, c := range fl.clients {
				c.ResetRequests()
			}
			before, n := f.RaftIndex(), 0
			for b.Loop() {
				n++
				round(n)
			}
			requests := 0
			for _, c := range fl.clients {
				for _, k := range c.Requests() {
					requests += k
				}
			}
			ticks := float64(n)
			b.ReportMetric(float64(f.RaftIndex()-before)/ticks, "raft-entries/tick")
			b.ReportMetric(float64(requests)/ticks, "requests/tick")
			b.ReportMetric(float64(starts)/ticks, "starts/tick")
		})
	}
}

// BenchmarkMinute is a fleet in the first second of a minute: all jobs are due at once, in all
// processes. It counts what a tick costs then, and how long it takes until the last has ended.
func BenchmarkMinute(b *testing.B) {
	for _, bm := range []struct{ instances, jobs int }{{1, 1000}, {10, 1000}, {20, 1000}} {
		b.Run(fmt.Sprintf("%d jobs, %d processes", bm.jobs, bm.instances), func(b *testing.B) {
			f := own(b)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			var all []instance
			for range bm.instances {
				all = append(all, f.instance(nil, nil))
			}
			for _, in := range all {
				require.Eventually(b, func() bool { return len(in.Clocks()) == bm.instances-1 }, soon, 5*time.Millisecond)
			}
			var starts atomic.Int64
			minute := func(n int) {
				var wg sync.WaitGroup
				for i := range all {
					for j := range bm.jobs {
						wg.Go(func() {
							if _, err := all[i].Do(ctx, fmt.Sprintf("job-%d", j), counted(&starts), schedlock.Tick(tick(n))); err != nil {
								b.Error(err)
							}
						})
					}
				}
				wg.Wait()
			}
			minute(0) // the settings
			starts.Store(0)
			requests := 0
			for _, in := range all {
				in.client.ResetRequests()
			}
			before, n := f.RaftIndex(), 0
			for b.Loop() {
				n++
				minute(n)
			}
			for _, in := range all {
				for _, k := range in.client.Requests() {
					requests += k
				}
			}
			ticks := float64(n * bm.jobs)
			require.EqualValues(b, ticks, starts.Load())
			b.ReportMetric(float64(f.RaftIndex()-before)/ticks, "raft-entries/tick")
			b.ReportMetric(float64(requests)/ticks, "requests/tick")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(n), "ms/minute")
			b.ReportMetric(0, "ns/op")
		})
	}
}
