package idempotency

import (
	"container/list"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A222: an outcome leaves the memory when it no longer counts, without another call. Until then it stays, also in a cache
// that is swept meanwhile.
func TestCacheIsSwept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keep = 10 * time.Second
		c := cache{most: 1 << 20, keep: keep, byRef: map[string]*list.Element{}}
		kept := func() int {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(t, len(c.byRef), c.order.Len())
			require.Equal(t, len(c.byRef) > 0, c.timer != nil, "it is swept while it has something")
			return len(c.byRef)
		}
		for i := range 5 {
			c.put(fmt.Sprint("ref", i), &Outcome{}, now(), time.Hour)
			time.Sleep(time.Second)
		}
		c.put("short", &Outcome{}, now(), time.Second)
		require.NotNil(t, c.get("ref0"), "the latest use does not make it younger")
		require.Equal(t, 6, kept())
		time.Sleep(3 * time.Second)
		require.Equal(t, 5, kept(), "all but the one that has expired")
		time.Sleep(keep - 8*time.Second - time.Millisecond)
		require.NotNil(t, c.get("ref0"))
		time.Sleep(keep/sweeps + 2*time.Millisecond)
		require.Less(t, kept(), 5)
		time.Sleep(keep)
		require.Zero(t, kept())
		require.Zero(t, c.size)
		c.put("again", &Outcome{}, now(), time.Hour)
		time.Sleep(2 * keep)
		require.Zero(t, kept())
	})
}
