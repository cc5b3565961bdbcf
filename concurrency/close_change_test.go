package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A606: a change that is under way when Close begins ends with ErrClosed, and may be made: it is, if only its answer is missing.
func TestChangeUnderWayWhenCloseBegins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(ctx context.Context, sm *concurrency.Semaphore) error
		made   func(concurrency.Status) bool
	}{
		"SetLimit": {
			func(ctx context.Context, sm *concurrency.Semaphore) error { return sm.SetLimit(ctx, 7) },
			func(st concurrency.Status) bool { return st.Limit == 7 },
		},
		"Evict": {
			func(ctx context.Context, sm *concurrency.Semaphore) error { return sm.Evict(ctx, "i", "enough") },
			func(st concurrency.Status) bool { return len(st.Holders) == 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, client := f.Session(idle())
			other, _ := f.Session(idle())
			sm, there := sem(t, s, "x", 2), sem(t, other, "x", 2)
			acquire(t, ctx, there, concurrency.ID("i"))
			answer := client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldResponse, Match: func(_ string, msg any) bool {
				r, ok := msg.(*etcdserverpb.TxnRequest)
				return ok && len(r.Success) > 0 && (r.Success[0].GetRequestPut() != nil || r.Success[0].GetRequestDeleteRange() != nil)
			}})
			changed, closed := make(chan error, 1), make(chan error, 1)
			go func() { changed <- c.change(ctx, sm) }()
			require.NoError(t, answer.WaitHit(ctx))
			go func() { closed <- s.Close(ctx) }()
			require.ErrorIs(t, got(t, changed, "it ends with the session"), concurrency.ErrClosed)
			require.NoError(t, answer.Release())
			require.NoError(t, got(t, closed, "the session"))
			st, err := there.Status(ctx)
			require.NoError(t, err)
			require.True(t, c.made(st), "%+v", st)
		})
	}
}
