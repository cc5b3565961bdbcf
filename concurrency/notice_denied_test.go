package concurrency_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// watching is a session that has listed its range, and watches it.
func (f fixture) watching() (*concurrency.Session, *embedtest.Client) {
	f.T.Helper()
	s, c := f.Session(idle())
	require.Eventually(f.T, func() bool { return c.Requests()["Watch.Send"] > 0 }, soon, tick)
	return s, c
}

// deniesNotices has a client see no notice by its watch, and etcd deny its reads of them that many times; -1 is always.
func deniesNotices(c *embedtest.Client, times int) (denied *embedtest.Injection) {
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: func(_ string, msg any) bool {
		r, ok := msg.(*pb.WatchResponse)
		return ok && slices.ContainsFunc(r.Events, func(e *mvccpb.Event) bool { return strings.Contains(string(e.Kv.Key), "/notice/") })
	}})
	return c.Inject(embedtest.Fault{
		Method: "Range", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Times: times,
		Match: func(_ string, msg any) bool {
			r, ok := msg.(*pb.RangeRequest)
			return ok && strings.Contains(string(r.Key), "/notice/")
		},
	})
}

// A330: another process has ended a permit, and etcd denies the read that asks for its notice. Release says so, and neither
// that the permit was lost nor that it was released; it continues, and once the read is allowed it says which of them.
func TestReleaseWhileTheNoticeIsDenied(t *testing.T) {
	t.Parallel()
	for name, evicted := range map[string]bool{"ReleaseID": false, "Evict": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, c := f.watching()
			other, _ := f.Session(nil)
			p := acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
			denied := deniesNotices(c, -1)
			if evicted {
				require.NoError(t, sem(t, other, "x", 1).Evict(ctx, "i", "enough"))
			} else {
				require.NoError(t, sem(t, other, "x", 1).ReleaseID(ctx, "i"))
			}
			err := p.Release(ctx)
			require.ErrorIs(t, err, concurrency.ErrUnconfirmed)
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
			require.NotErrorIs(t, err, concurrency.ErrLost)
			denied.Remove()
			require.Eventually(t, func() bool {
				err = p.Release(ctx)
				return err == nil || !strings.Contains(err.Error(), "permission")
			}, soon, tick)
			if evicted {
				require.ErrorIs(t, err, concurrency.ErrEvicted)
				require.ErrorContains(t, err, "enough")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// A330: the key of an election's term is gone, and etcd denies the read of the notice: the term ends, and says that the reason
// is not known.
func TestTermWhileTheNoticeIsDenied(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, c := f.watching()
	admin, _ := f.Session(nil)
	term, err := election(t, s, "x").Campaign(ctx)
	require.NoError(t, err)
	deniesNotices(c, -1)
	require.NoError(t, election(t, admin, "x").EvictToken(ctx, term.Token(), "too slow"))
	lostBy(t, term, concurrency.ErrLost)
	require.ErrorContains(t, term.Err(), "whether another process did that is not known")
	require.ErrorContains(t, term.Err(), "permission denied")
}

// A330: a request that waits is evicted while etcd denies the read of the notice for a moment: its call returns ErrEvicted. It
// asked anew, and had a permit later, as if it had not been evicted.
func TestEvictedWaiterWhileTheNoticeIsDenied(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, c := f.watching()
	other, _ := f.Session(nil)
	p := acquire(t, ctx, sem(t, other, "x", 1))
	w := ask(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
	f.sees(ctx, sem(t, s, "x", 1))
	denied := deniesNotices(c, 2)
	require.NoError(t, sem(t, other, "x", 1).Evict(ctx, "i", "enough"))
	require.ErrorIs(t, got(t, w, "the call ends").err, concurrency.ErrEvicted)
	require.Equal(t, 2, denied.Hits())
	require.NoError(t, p.Release(ctx))
}
