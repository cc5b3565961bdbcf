package limitgrpc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestRefusalEndsOutage: under Open, an outage ends when etcd answers that it refuses the call (A256 in
// internal/proof/tested-failures.md): from then on no call runs without a permit or a token.
func TestRefusalEndsOutage(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"limiter", "rate"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			changes := make(chan bool, 100)
			o := options(wait(100*time.Millisecond), func(o *limitgrpc.Options) {
				o.Outage, o.Patience = limitgrpc.Open, time.Millisecond
				o.OnOutage = func(err error) { changes <- err != nil }
			})
			var lim concurrency.Limiter = in
			if with == "rate" {
				lim = nil
				in.rate("begin", ample)(&o)
			}
			u, err := limitgrpc.UnaryServerInterceptor(lim, o)
			require.NoError(t, err)
			s := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(u)}, ok, okStream)
			in.client.Cut()
			require.Eventually(t, func() bool { return s.get("acme") == nil }, testkit.Soon, 10*time.Millisecond)
			require.True(t, testkit.Got(t, changes, "the outage begins"))
			in.client.Inject(embedtest.Fault{Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
			in.client.Heal()
			require.Eventually(t, func() bool { return s.get("acme") != nil }, testkit.Soon, 50*time.Millisecond)
			require.Eventually(t, func() bool { _ = s.get("acme"); return len(changes) > 0 }, testkit.Soon, 50*time.Millisecond)
			require.False(t, <-changes, "the outage ends")
			before := s.calls.Load()
			for range 5 {
				require.Equal(t, codes.Unavailable, status.Code(s.get("acme")))
			}
			require.Equal(t, before, s.calls.Load())
			require.Empty(t, changes)
		})
	}
}
