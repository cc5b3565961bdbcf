package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Status distinguishes a holder that is stuck from one that is dead: the session of the first renews
// its lease, and that of the second does not. ExpiresBy is when a dead holder's permit is free
// at the latest, and not long after it is.
func TestStatusDistinguishesStuckFromDead(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, on []*desk) {
		dead, stuck, operator := on[0], on[1], on[2].semaphore(2)
		for _, d := range []*desk{dead, stuck} {
			_, err := d.semaphore(2).Acquire(within(t, time.Minute))
			require.NoError(t, err)
		}
		time.Sleep(7 * time.Second) // renewed 5 s after the beginning
		dead.client.Stall()
		time.Sleep(10 * time.Second)
		renewed := func(d *desk, ago int) time.Time { return d.begun.Add(time.Duration(ago) * renews) }

		st, err := operator.Status(within(t, time.Minute), concurrency.CheckLeases())
		require.NoError(t, err)
		require.Len(t, st.Holders, 2)
		for i, at := range []time.Time{renewed(dead, 1), renewed(stuck, 3)} {
			h := st.Holders[i]
			require.WithinRange(t, h.Renewed, at.Add(-time.Second), at)
			require.WithinRange(t, h.ExpiresBy, at.Add(ttl), at.Add(ttl+1500*time.Millisecond))
		}
		plain, err := operator.Status(within(t, time.Minute))
		require.NoError(t, err)
		require.Zero(t, plain.Holders[0].Renewed)
		require.Zero(t, plain.Holders[0].ExpiresBy)

		time.Sleep(time.Until(st.Holders[0].ExpiresBy))
		st, err = operator.Status(within(t, time.Minute), concurrency.CheckLeases())
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		require.Equal(t, stuck.session.Lease(), st.Holders[0].Lease)
		require.WithinRange(t, st.Holders[0].Renewed, time.Now().Add(-renews-time.Second), time.Now())
	})
}
