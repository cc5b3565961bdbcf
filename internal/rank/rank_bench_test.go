package rank_test

import (
	"fmt"
	"testing"

	"github.com/etcdkit/etcdkit/internal/rank"
)

// BenchmarkDelete has one request leave a queue of that length and another join: the first one, as
// by a release, or one from the middle, as by a caller that gives up.
func BenchmarkDelete(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		for where, at := range map[string]int{"first": 0, "middle": n / 2} {
			b.Run(fmt.Sprintf("of=%d/%s", n, where), func(b *testing.B) {
				entry := func(i int) rank.Entry { return rank.Entry{Key: fmt.Sprint(i % n), Create: int64(i) + 1, Weight: 1} }
				var q rank.Queue
				q.SetLimit(1, 0)
				for i := range n {
					q.Insert(entry(i))
				}
				b.ResetTimer()
				for i := range b.N {
					q.Insert(entry(n + i))
					if e := entry(at + i); !q.Delete(e.Key, e.Create) {
						b.Fatalf("%v is not in the queue", e)
					}
					q.Admit()
				}
			})
		}
	}
}
