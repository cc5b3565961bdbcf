package virtual

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// Two Lockers on one session, whose jobs differ in Options: each says which jobs it has, also after a lease (A461 in
// internal/proof/tested-failures.md). The second one replaced the list of the first: EtcdkitJobGone rang for its jobs, and Forget
// removed one. After an outage the list could be
// missing for an hour: the lease had ended while it was looked for plans to remove.
func TestTwoLockersOfASession(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		lockers := []*schedlock.Locker{on[0].locker(), on[0].locker()}
		for n, l := range lockers {
			j, err := l.Job(fmt.Sprint("job-", n), daily(9*time.Hour), noWork)
			require.NoError(t, err)
			j.Next(time.Now())
		}
		operator := on[1].locker()
		live := func() {
			t.Helper()
			time.Sleep(time.Hour)
			for n := range lockers {
				name := fmt.Sprint("job-", n)
				st, err := operator.Status(t.Context(), name)
				require.NoError(t, err)
				require.True(t, st.Plan.Live, name)
				require.Error(t, operator.Forget(t.Context(), name), name)
			}
		}
		live()
		on[0].client.Stall()
		time.Sleep(10 * ttl)
		on[0].client.Heal()
		live()
	})
}
