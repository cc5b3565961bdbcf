package keyspace_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Each key of a range is read once, whatever its keys are and however large the pages, and the ranges that etcd counts
// for a long one do not grow with the square of its length.
func TestSpan(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	letters := func(n int, of string) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = of[r.IntN(len(of))]
		}
		return string(b)
	}
	shapes := map[string]func(i int) string{
		"hashes": func(int) string {
			return letters(20, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
		},
		"hashes of tenants": func(i int) string { return fmt.Sprint(i%7, "/", letters(20, "0123456789abcdef")) },
		"numbers":           func(i int) string { return fmt.Sprint(i) },
		"any bytes":         func(int) string { return letters(1+r.IntN(5), "\x00\x01a\xfe\xff") },
		"one":               func(int) string { return "x" },
	}
	for name, key := range shapes {
		t.Run(name, func(t *testing.T) {
			var all []string
			for i := range 50_000 {
				all = append(all, "/k/"+key(i))
			}
			slices.Sort(all)
			all = slices.Compact(all)
			for _, page := range []int{1, 2, 32, 256} {
				keys := all[:min(len(all), 1000*page)]
				span, counted, pages := keyspace.NewSpan("/k/", "/k0"), 0, 0
				var got []string
				for done := false; !done; pages++ {
					from, end := span.Range()
					first, _ := slices.BinarySearch(keys, from)
					after, _ := slices.BinarySearch(keys, end)
					counted += after - first
					if after-first <= page {
						got = append(got, keys[first:after]...)
						done = span.Finish()
						continue
					}
					got = append(got, keys[first:first+page]...)
					span.Advance(keys[first], keys[first+page-1])
				}
				require.Equal(t, keys, got)
				require.LessOrEqual(t, pages, 2*(len(keys)/page)+2)
				if name == "hashes" && page > 2 {
					require.Less(t, counted, 60*len(keys), "each of the 64 first characters costs half of the range once, and its own pages")
				}
			}
		})
	}
}
