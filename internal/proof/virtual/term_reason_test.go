package virtual

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A119: the end of a lease deletes the key of a term, or of a permit that may be kept, and the presence key
// of its session at one revision. If the session sees the first deletion first, the permit is lost with the
// session all the same. So it is for a Release that finds its key gone. If the key alone was deleted, the
// session lives.
func TestReasonOfALostTerm(t *testing.T) {
	t.Parallel()
	permits := map[string]func(*desk) *concurrency.Permit{
		"a permit": (*desk).acquire,
		"a term": func(d *desk) *concurrency.Permit {
			p, err := electionOf(d).Campaign(within(d.t, time.Minute))
			require.NoError(d.t, err)
			return p
		},
		"a kept permit": func(d *desk) *concurrency.Permit {
			sem := d.keeping(1, time.Hour)
			d.warm(sem)
			return d.get(sem)
		},
	}
	for name, c := range map[string]struct {
		lose      func(*desk)
		not, want string
		alive     bool
	}{
		"the lease has expired": {func(d *desk) { require.True(d.t, d.server.Expire(d.session.Lease())) }, "its key was", "lost (session)", false},
		"the key was deleted":   {deleteRequests, "presence key", "lost (key_gone)", true},
	} {
		for what, permit := range permits {
			t.Run(what+", "+name, func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, on []*desk) {
					d, hooks := on[0], &testkit.Recorder{}
					d.open(concurrency.SessionOptions{Hooks: hooks.Hooks()})
					p := permit(d)
					lease := d.session.Lease()
					synctest.Wait() // a term follows its key
					d.losesPresence()
					c.lose(d)
					if what == "a permit" {
						err := p.Release(t.Context())
						require.ErrorIs(t, err, concurrency.ErrLost)
						require.NotContains(t, err.Error(), c.not)
					} else {
						begun := time.Now()
						ended(t, p)
						require.Zero(t, time.Since(begun))
						require.ErrorIs(t, p.Err(), concurrency.ErrLost)
						require.NotContains(t, p.Err().Error(), c.not)
					}
					time.Sleep(time.Second)
					require.Contains(t, strings.Join(hooks.Texts(queue), "; "), c.want)
					require.Equal(t, c.alive, d.session.Lease() == lease, "the session has its lease")
				})
			})
		}
	}
}

// deleteRequests deletes the requests of all queues by hand.
func deleteRequests(d *desk) {
	for _, key := range d.server.Keys(root) {
		if strings.Contains(key, "/queue/") {
			_, err := d.client.Delete(d.t.Context(), key)
			require.NoError(d.t, err)
		}
	}
}

// A120: a term that is released costs a Txn and no read, although the queue that it follows shows its key deleted.
func TestReleaseOfATermReadsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		el := electionOf(d)
		first, err := el.Campaign(t.Context())
		require.NoError(t, err)
		synctest.Wait() // the queue was read
		var reads atomic.Int64
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method == "Range" && !m.Response {
				reads.Add(1)
			}
			return etcdfake.Fault{}
		})
		require.NoError(t, first.Release(t.Context()))
		for range 500 {
			p, err := el.Campaign(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.Release(t.Context()))
		}
		synctest.Wait()
		require.Zero(t, reads.Load())
	})
}
