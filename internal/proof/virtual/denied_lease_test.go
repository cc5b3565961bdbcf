package virtual

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A491: a role denies the ends of many attempts for ten minutes. They are written again all the time, and use up the leases of
// one try in each window of ten minutes. When the role allows them, each is recorded.
func TestDeniedEndsUseUpNoLeases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		many int
		end  func(ctx context.Context, at *idempotency.Attempt) error
	}{
		"outcomes": {110, func(ctx context.Context, at *idempotency.Attempt) error { return at.Commit(ctx, []byte("x")) }},
		"parts":    {10, func(ctx context.Context, at *idempotency.Attempt) error { return at.Commit(ctx, make([]byte, 129<<10)) }},
		"released": {110, func(ctx context.Context, at *idempotency.Attempt) error { return at.Release(ctx) }}, // with recovery points
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d, all := on[0], make([]*idempotency.Attempt, tt.many)
				a := d.storeOf(idempotency.Options{})
				for i := range all {
					all[i] = started(t, a, order(string(rune('a'+i))))
					_, err := idempotency.Step(all[i], "first", func(context.Context) (int, error) { return 1, nil })
					require.NoError(t, err)
				}
				var grants, tries atomic.Int64
				var allowed atomic.Bool
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					switch m.Body.(type) {
					case *pb.LeaseGrantRequest:
						grants.Add(1)
					case *pb.TxnRequest:
						if tries.Add(1); !allowed.Load() {
							return etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCPermissionDenied}
						}
					}
					return etcdfake.Fault{}
				})
				for _, at := range all {
					require.ErrorIs(t, tt.end(within(t, 10*time.Millisecond), at), idempotency.ErrNotRecorded)
				}
				time.Sleep(time.Minute)
				first := grants.Load()
				require.LessOrEqual(t, first, int64(4))
				time.Sleep(2 * time.Minute)
				require.Equal(t, first, grants.Load(), "in the same window")
				require.Greater(t, tries.Load(), int64(20*tt.many))
				time.Sleep(8 * time.Minute)
				require.LessOrEqual(t, grants.Load(), 2*first+2)
				allowed.Store(true)
				time.Sleep(time.Minute)
				require.Zero(t, a.Stats().Pending)
			})
		})
	}
}
