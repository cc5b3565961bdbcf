package virtual

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// lined has so many calls wait in the local queue, and returns what they get.
func (d *desk) lined(sem *concurrency.Semaphore, calls int) <-chan *concurrency.Permit {
	got := make(chan *concurrency.Permit, calls)
	for range calls {
		go func() {
			if p, err := sem.Acquire(d.t.Context()); err == nil {
				got <- p
			}
		}()
	}
	synctest.Wait()
	return got
}

// A88: a limit that was lowered since the grant stops a permit from passing on, also if it is as high as it was
// at the grant.
func TestLimitThatWasRaisedAndLowered(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, operator := on[0], on[1].semaphore(2)
		sem := d.passing(2, 30*time.Second)
		old := []*concurrency.Permit{d.get(sem), d.get(sem)}
		next := d.lined(sem, 3)
		require.NoError(t, operator.SetLimit(t.Context(), 3))
		time.Sleep(time.Second)
		third := <-next
		require.NoError(t, operator.SetLimit(t.Context(), 2))
		time.Sleep(time.Second)
		require.NoError(t, old[0].Release(t.Context()))
		synctest.Wait()
		require.Empty(t, next, "2 of 2 are in use")
		require.NoError(t, old[1].Release(t.Context()))
		synctest.Wait()
		require.Len(t, next, 1)
		require.NoError(t, third.Release(t.Context()))
		synctest.Wait()
		require.Len(t, next, 2)
		for range 2 {
			require.NoError(t, (<-next).Release(t.Context()))
		}
	})
}

// A88: after the limit was lowered, the fetches above it are withdrawn when the local queue changes next.
func TestLoweredLimitWithdrawsFetches(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, other := on[0], on[1]
		all, err := other.semaphore(30).Acquire(t.Context(), concurrency.Weight(30))
		require.NoError(t, err)
		sem, err := concurrency.NewSemaphore(d.session, queue, 30, &concurrency.SemaphoreOptions{Handover: 30 * time.Second})
		require.NoError(t, err)
		next := d.lined(sem, 60)
		require.Equal(t, 31, d.held())
		require.NoError(t, other.semaphore(30).SetLimit(t.Context(), 1))
		time.Sleep(time.Second)
		more := d.lined(sem, 1)
		time.Sleep(time.Second)
		require.Equal(t, 2, d.held(), "one request is enough for a limit of 1")
		require.NoError(t, all.Release(t.Context()))
		for range 60 {
			require.NoError(t, (<-next).Release(t.Context()))
		}
		require.NoError(t, (<-more).Release(t.Context()))
	})
}

// A88: a call in the local queue whose Wait ends before etcd has answered a fetch says so, and not that the
// semaphore is full.
func TestLocalQueueWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.passing(1, 20*time.Millisecond)
		d.use(sem)
		d.slow("Txn", 1, etcdfake.Fault{ResponseDelay: 200 * time.Millisecond})
		_, err := sem.Acquire(t.Context(), concurrency.Wait(100*time.Millisecond))
		require.ErrorIs(t, err, concurrency.ErrUnavailable)
		unavailable, _ := errors.AsType[*concurrency.UnavailableError](err)
		require.Nil(t, unavailable.Seen, "nothing is known of the queue")
	})
}

// A88: what a call of this process has changed counts for its next call, whenever the watch brings it.
func TestOwnChangeEndsKeep(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		d.noWatch()
		require.NoError(t, sem.SetLimit(t.Context(), 0))
		_, err := sem.TryAcquire(within(t, time.Millisecond))
		require.ErrorIs(t, err, concurrency.ErrFull)
	})
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.keeping(1, time.Hour)
		d.warm(sem)
		d.noWatch()
		st, err := sem.Status(t.Context())
		require.NoError(t, err)
		require.NoError(t, sem.EvictToken(t.Context(), st.Holders[0].Token, "x"))
		p := d.get(sem)
		require.NotEqual(t, st.Holders[0].Token, p.Token())
		require.NoError(t, p.Release(t.Context()))
	})
}
