package concurrency_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// BenchmarkDeadKeys has 20,000 keys of a limiter, or ETCDKIT_DEAD, each used once, and reports what
// their names cost the member until compaction and after it: bytes of its memory for each, how long
// a count of all the limiter's requests takes, which has none to count, and how long an Acquire and
// Release of one key.
func BenchmarkDeadKeys(b *testing.B) {
	n := 20_000
	if s := os.Getenv("ETCDKIT_DEAD"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	ctx := context.Background()
	etcd := embedtest.Start(b, &embedtest.Options{QuotaBytes: 8 << 30})
	s, err := concurrency.NewSession(ctx, etcd.NewClient(b, nil).Client, "bench", nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(ctx) })
	lim := keyed(b, s, "llm", 1)
	use := func(i int) error {
		p, err := lim.Key(nthKey("k", i)).Acquire(ctx)
		if err != nil {
			return err
		}
		return p.Release(ctx)
	}
	each(b, 1000, use)
	_, err = etcd.Compact(ctx)
	require.NoError(b, err)
	before := heap()
	report := func(when string) {
		var counts, uses []time.Duration
		for range 21 {
			counts = append(counts, timed(func() {
				resp, err := etcd.Client().Get(ctx, s.NamespacePrefix()+"limiter/llm/key/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				require.NoError(b, err)
				require.Zero(b, resp.Count)
			}))
			uses = append(uses, timed(func() { require.NoError(b, use(0)) }))
		}
		slices.Sort(counts)
		slices.Sort(uses)
		b.ReportMetric(float64(heap()-before)/float64(n), "B/key"+when)
		b.ReportMetric(float64(counts[10].Microseconds())/1000, "count-ms"+when)
		b.ReportMetric(float64(uses[10].Microseconds())/1000, "use-ms"+when)
	}
	each(b, n, use)
	b.ReportMetric(0, "ns/op")
	report("")
	_, err = etcd.Compact(ctx)
	require.NoError(b, err)
	report("-compacted")
}
