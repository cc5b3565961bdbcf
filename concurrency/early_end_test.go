package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// S3, F05, F07, F10: whatever ends a lease early, or takes its presence key away,
// ends the permits at once, long before their time. The session continues with a
// new lease, and the old one leaves nothing (L6).
func TestTrapS3LostEarly(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(f fixture, lease clientv3.LeaseID, presence string) error{
		"revoked": func(f fixture, lease clientv3.LeaseID, _ string) error { return f.RevokeLease(ctxT(f.T), lease) },
		"expired": func(f fixture, lease clientv3.LeaseID, _ string) error { return f.ExpireLease(ctxT(f.T), lease) },
		"deleted": func(f fixture, _ clientv3.LeaseID, presence string) error {
			_, err := f.Client().Delete(ctxT(f.T), presence)
			return err
		},
		"overwritten": func(f fixture, _ clientv3.LeaseID, presence string) error {
			_, err := f.Client().Put(ctxT(f.T), presence, "mine now")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			// So long that neither the deadline nor a refresh can show it.
			opts, reported := traced(&concurrency.SessionOptions{TTL: 300 * time.Second})
			s, _ := f.Session(opts)
			p := lock(t, s, "x")
			lease := s.Lease()
			require.NoError(t, strike(f, lease, f.Keys("/alive")[0]))
			lostBy(t, p, concurrency.ErrLost)
			require.Equal(t, lease, got(t, reported.lost, "SessionLost"))
			require.Equal(t, p.Token(), got(t, reported.permit, "Lost").Token)
			next := got(t, reported.renewed, "SessionRenewed")
			require.Equal(t, s.Lease(), next)
			require.NotEqual(t, lease, next)
			q := lock(t, s, "x") // at once: no ghost of the old lease is in the way
			require.Greater(t, q.Token(), p.Token())
			require.Eventually(t, func() bool {
				ttl, err := f.Client().TimeToLive(ctxT(t), lease)
				return err == nil && ttl.TTL == -1
			}, soon, 5*time.Millisecond, "the old lease is revoked")
			require.NoError(t, q.Release(ctxT(t)))
		})
	}
}

// The same where the watch ends after it has lost the word: the range is listed anew
// at once.
func TestTrapS9ReportedAfterABreak(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	require.Eventually(t, func() bool { return c.Requests()["Watch.Send"] > 0 }, soon, tick, "it has listed its range")
	admin, _ := f.Session(nil)
	p, q := acquire(t, ctx, sem(t, s, "x", 2), concurrency.ID("i")), acquire(t, ctx, sem(t, s, "x", 2), concurrency.ID("j"))
	lost := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Match: eventOn("/notice/")})
	require.NoError(t, sem(t, admin, "x", 2).Evict(ctx, "i", "why"))
	require.NoError(t, lost.WaitHit(ctx))
	require.NoError(t, p.Err(), "the word was lost, and the permit believes in itself")
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoLeader}) // the next message ends it
	require.NoError(t, sem(t, admin, "x", 2).Evict(ctx, "j", "why too"))
	closed(t, q.Context().Done(), "the list shows it")
	closed(t, p.Context().Done(), "what the watch had lost, too")
	require.ErrorContains(t, p.Err(), "why")
}

// F20: the lease goes while a request is under way. The call queues anew on the
// next one.
func TestLeaseGoesUnderARequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	mu := mutex(t, s, "x")
	inj := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	ch := make(chan *concurrency.Permit, 1)
	go func() {
		p, err := mu.Lock(ctxT(t))
		if err != nil {
			t.Error(err)
		}
		ch <- p
	}()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	old := s.Lease()
	require.NoError(t, f.RevokeLease(ctxT(t), old))
	require.NoError(t, inj.Release())
	p := got(t, ch, "the call succeeds on the next lease")
	require.NotEqual(t, old, s.Lease())
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
}
