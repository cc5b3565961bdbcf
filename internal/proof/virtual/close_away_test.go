package virtual

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// spares has a process keep an unused lease for the cooldown of each of some jobs: each time another process claims first.
func spares(t *testing.T, d, other *desk, jobs int) {
	t.Helper()
	a, b := d.locker(), other.locker()
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Method == "Txn" && !m.Response {
			return etcdfake.Fault{RequestDelay: 500 * time.Millisecond}
		}
		return etcdfake.Fault{}
	})
	for i := range jobs {
		late := make(chan error, 1)
		run := func(l *schedlock.Locker) error {
			_, err := l.Do(t.Context(), fmt.Sprint("job", i), noWork, fireTime(1), schedlock.AtLeast(time.Hour))
			return err
		}
		go func() { late <- run(a) }()
		time.Sleep(400 * time.Millisecond)
		require.NoError(t, run(b))
		require.NoError(t, <-late)
	}
	d.client.Inject(nil)
}

// A751: Close of a process with unused leases of forty jobs takes no second for each of them while etcd is away, and revokes
// all of them if each revocation takes long.
func TestCloseRevokesUnusedLeases(t *testing.T) {
	t.Parallel()
	const jobs = 40
	t.Run("etcd is away", func(t *testing.T) {
		t.Parallel()
		bubble(t, 2, func(t *testing.T, on []*desk) {
			spares(t, on[0], on[1], jobs)
			on[0].client.Refuse()
			require.LessOrEqual(t, on[0].close(time.Second), 3500*time.Millisecond)
		})
	})
	t.Run("etcd is slow", func(t *testing.T) {
		t.Parallel()
		bubble(t, 2, func(t *testing.T, on []*desk) {
			spares(t, on[0], on[1], jobs)
			before := len(on[0].server.Leases())
			on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				if m.Method == "LeaseRevoke" && !m.Response {
					return etcdfake.Fault{RequestDelay: 400 * time.Millisecond}
				}
				return etcdfake.Fault{}
			})
			require.LessOrEqual(t, on[0].close(time.Second), 3500*time.Millisecond)
			require.Len(t, on[0].server.Leases(), before-jobs-1, "the unused ones, and the session's")
		})
	})
}

// A752: Close of a process that takes tokens of a slow rate is not late, nor reports a function of the program, while etcd is away
// and ReleaseTimeout is long.
func TestCloseLeavesStoredTokens(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*etcdfake.Client){"refuses": (*etcdfake.Client).Refuse, "does not answer": (*etcdfake.Client).Stall} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcdfake.Test(t, func(t *testing.T, server *etcdfake.Server) {
				client := server.NewClient()
				sess, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{TTL: ttl, Margin: margin, Prefix: prefix, ReleaseTimeout: time.Minute})
				require.NoError(t, err)
				l, err := concurrency.NewRateLimiter(sess, "rate", concurrency.Rate{PerSecond: 1e-4, Burst: 3}, nil)
				require.NoError(t, err)
				require.NoError(t, l.Wait(within(t, time.Minute)))
				away(client)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				begun := time.Now()
				err = sess.Close(ctx)
				require.LessOrEqual(t, time.Since(begun), 3500*time.Millisecond)
				require.ErrorContains(t, err, "is left to expire")
				require.NotContains(t, err.Error(), "a function of the program")
			})
		})
	}
}
