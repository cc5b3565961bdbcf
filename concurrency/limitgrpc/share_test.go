package limitgrpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestShare: without etcd, unary calls and streams of a process have one share of the limit together,
// and work under it gets a permit when etcd answers again.
func TestShare(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease to be lost")
	}
	t.Parallel()
	f := testkit.Shared(t)
	sess, client := f.Session(testkit.Quick())
	lim, err := concurrency.NewKeyedLimiter(sess, "tenants", 5, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	in := instance{lim, f, sess, client}
	permitted, leave := make(chan bool, 1), make(chan struct{})
	s := serve(t, in.interceptors(options(wait(500*time.Millisecond), func(o *limitgrpc.Options) {
		o.Outage, o.Patience = limitgrpc.Share, time.Second
	})), func(ctx context.Context, req *message) (*message, error) {
		if req.Value == "stay" {
			<-leave
			_, ok := limitgrpc.FromContext(ctx)
			permitted <- ok
		}
		return wrapperspb.String("done"), nil
	}, okStream)
	finish := sync.OnceFunc(func() { close(leave) })
	t.Cleanup(finish) // before the server is closed
	stream := func() error {
		st, err := s.conn.NewStream(as(ctxT(t), "acme"), watchStream, watchMethod)
		require.NoError(t, err)
		require.NoError(t, st.CloseSend())
		return st.RecvMsg(new(message))
	}
	require.Eventually(t, func() bool { return s.get("acme") == nil }, testkit.Soon, 10*time.Millisecond)
	share := func() concurrency.Share {
		share, ok := in.Total().Share()
		require.True(t, ok)
		return share
	}
	require.Eventually(t, func() bool { return share().Sessions == 1 }, testkit.Soon, 10*time.Millisecond)
	client.Cut()
	require.Eventually(t, func() bool { return s.get("acme") == nil }, testkit.Soon, 10*time.Millisecond, "it runs under the share")
	first := s.later(as(ctxT(t), "acme"), "stay")
	require.Eventually(t, func() bool { return share().Running == 1 }, testkit.Soon, 5*time.Millisecond)
	err = s.get("other")
	refusal(t, err, codes.Unavailable, limitgrpc.ReasonUnavailable)
	refusal(t, stream(), codes.Unavailable, limitgrpc.ReasonUnavailable)
	client.Heal()
	in.until("acme", 1, 0)
	require.Eventually(t, func() bool { return share().Running == 0 }, testkit.Soon, 5*time.Millisecond)
	finish()
	require.True(t, testkit.Got(t, permitted, "the handler ends"))
	require.NoError(t, testkit.Got(t, first, "the call"))
	in.until("acme", 0, 0)
	require.NoError(t, s.get("acme"))
}
