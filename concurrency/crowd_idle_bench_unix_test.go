//go:build unix

package concurrency_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkIdleCrowd has 300 sessions wait behind one holder while nothing happens. It reports the
// processor time per second, of etcd and all clients, and the Txns per second of one of them. An
// operation is one second.
func BenchmarkIdleCrowd(b *testing.B) {
	const processes = 300
	f, ctx := own(b, 1), ctxT(b)
	s, _ := f.Session(idle())
	acquire(b, ctx, sem(b, s, "x", 1))
	var txns func() int
	for range processes {
		s, c := f.Session(idle())
		sm := sem(b, s, "x", 1)
		go func() { _, _ = sm.Acquire(ctx) }()
		txns = func() int { return c.Requests()["Txn"] }
	}
	require.Eventually(b, func() bool { return len(f.Keys("queue/")) == 1+processes }, soon, tick)
	time.Sleep(5 * time.Second) // what they do at first is not what they do all the time
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, sent := used(), txns()
	b.ResetTimer()
	time.Sleep(time.Duration(b.N) * time.Second)
	b.StopTimer()
	b.ReportMetric(float64((used()-before).Milliseconds())/float64(b.N), "ms-cpu/s")
	b.ReportMetric(float64(txns()-sent)/float64(b.N), "Txns/s")
}
