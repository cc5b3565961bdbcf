package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A409: calls whose waits end at the same time share one count, and one that comes within a second takes its result. After that,
// it is counted again.
func TestRecount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recount
		var counts int64
		end := make(chan struct{})
		count := func() *Full {
			counts++
			n := counts
			<-end
			return &Full{Limit: n}
		}
		var all sync.WaitGroup
		found := make(chan int64, 10)
		for range 10 {
			all.Go(func() { found <- r.of(count).Limit })
		}
		synctest.Wait() // one counts, and the others wait for it without the lock
		r.mu.Lock()
		require.NotNil(t, r.under)
		r.mu.Unlock()
		close(end)
		all.Wait()
		for range 10 {
			require.EqualValues(t, 1, <-found)
		}
		time.Sleep(recountFor - 1)
		require.EqualValues(t, 1, r.of(count).Limit)
		time.Sleep(1)
		require.EqualValues(t, 2, r.of(count).Limit)
		require.EqualValues(t, 2, counts)
		require.Nil(t, r.under)
	})
}
