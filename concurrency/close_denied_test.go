package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
)

// F19: etcd denies the revocation of a lease that was lost, and the session is closed before that lease has expired. Close
// tries it once more, and reports what is left to expire.
func TestCloseAfterADeniedRevocation(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"denied again": true, "allowed by then": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			opts, reported := traced(nil)
			s, c := f.Session(opts)
			p := lock(t, s, "x")
			old := s.Lease()
			deny := embedtest.Fault{Method: "LeaseRevoke", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied,
				Match: func(_ string, msg any) bool { return msg.(*etcdserverpb.LeaseRevokeRequest).ID == int64(old) }}
			if again {
				deny.Times = -1
			}
			inj := c.Inject(deny)
			_, err := f.Client().Delete(ctxT(t), f.Keys("/alive")[0])
			require.NoError(t, err)
			closed(t, p.Context().Done(), "the permit is lost")
			got(t, reported.lost, "SessionLost")
			require.Eventually(t, func() bool { return inj.Hits() == 1 }, soon, 5*time.Millisecond)
			next := lock(t, s, "y") // the session goes on
			require.NoError(t, next.Release(ctxT(t)))

			err = s.Close(ctxT(t))
			ttl, timeErr := f.Client().TimeToLive(ctxT(t), old)
			require.NoError(t, timeErr)
			if again {
				require.ErrorContains(t, err, "is left to expire, unless it has ended")
				require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
				require.Positive(t, ttl.TTL)
				require.NotEmpty(t, f.Keys("/queue/"), "the lock is taken until then")
				require.NoError(t, f.RevokeLease(ctxT(t), old))
			} else {
				require.NoError(t, err)
				require.EqualValues(t, -1, ttl.TTL)
			}
			f.leftNothing(c)
		})
	}
}
