package virtual

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A call whose Wait ends after the Txn of its request was answered gets how full the queue is: that Txn
// has counted it, however late the view of the queue is (A149).
func TestShortWaitIsCounted(t *testing.T) {
	t.Parallel()
	const oneWay = 10 * time.Millisecond
	for _, total := range []int{0, 1} {
		t.Run(fmt.Sprint("total ", total), func(t *testing.T) {
			t.Parallel()
			// It counts the keys and reads each limit first, and then writes the request.
			for wait := oneWay*time.Duration(5+4*total) - time.Millisecond; wait <= 15*oneWay; wait += 2 * time.Millisecond {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					sem := func(d *desk) *concurrency.Semaphore {
						if total == 0 {
							return d.semaphore(1)
						}
						return d.tenant(1, total)
					}
					p, err := sem(on[0]).Acquire(within(t, time.Minute))
					require.NoError(t, err)
					on[1].away(oneWay, 0)
					_, err = sem(on[1]).Acquire(within(t, time.Minute), concurrency.Wait(wait))
					var full *concurrency.FullError
					require.ErrorAs(t, err, &full, "%v", wait)
					require.Equal(t, []int{1, 1}, []int{full.Limit, full.Used}, "%v: %v", wait, err)
					require.NoError(t, p.Release(t.Context()))
				})
			}
		})
	}
}

// A call whose Wait passes at the moment at which its session is closed, or loses its lease, never returns
// an error of a context: its own lives (A150).
func TestWaitEndsWithTheSession(t *testing.T) {
	t.Parallel()
	const wait, calls = 100 * time.Millisecond, 60
	for name, end := range map[string]func(d *desk){
		"closed":            func(d *desk) { _ = d.session.Close(context.Background()) },
		"the lease is lost": func(d *desk) { d.server.Expire(d.session.Lease()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				holds, err := on[0].tenant(1, 1).Acquire(within(t, time.Minute))
				require.NoError(t, err)
				mine := on[0].acquire()
				there, key := on[1].semaphore(1), on[1].tenant(1, 1)
				on[1].away(time.Millisecond, 0)
				errs, all := make(chan error, 2*calls), sync.WaitGroup{}
				for i := range 2 * calls {
					of := there
					if i%2 == 0 {
						of = key
					}
					all.Go(func() {
						_, err := of.Acquire(t.Context(), concurrency.Wait(wait))
						errs <- err
					})
				}
				time.Sleep(wait)
				end(on[1])
				all.Wait()
				close(errs)
				for err := range errs {
					require.Error(t, err)
					require.NotErrorIs(t, err, context.Canceled)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
				}
				require.NoError(t, holds.Release(t.Context()))
				require.NoError(t, mine.Release(t.Context()))
			})
		})
	}
}
