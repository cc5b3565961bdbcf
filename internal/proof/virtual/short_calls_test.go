package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// caller makes calls with deadlines through the interceptor of a desk, and returns their codes and how long they took.
func (d *desk) caller(store *idempotency.Store, open bool) func(key string, patience time.Duration) (codes.Code, time.Duration) {
	d.t.Helper()
	interceptor, err := idemgrpc.UnaryServerInterceptor(store, &idemgrpc.Options{FailOpen: open, Scope: func(context.Context) string { return "tenant" }})
	require.NoError(d.t, err)
	return func(key string, patience time.Duration) (codes.Code, time.Duration) {
		ctx, cancel := context.WithTimeout(d.t.Context(), patience)
		defer cancel()
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("idempotency-key", key))
		sent := time.Now()
		_, err := interceptor(ctx, &emptypb.Empty{}, &grpc.UnaryServerInfo{FullMethod: "/pay.Payments/Charge"}, func(context.Context, any) (any, error) {
			return &emptypb.Empty{}, nil
		})
		return grpcstatus.Code(err), time.Since(sent)
	}
}

// A710: an outage is noticed after StoreTimeout of etcd's silence, although each client leaves before that: each call hung
// until its deadline, and FailOpen had no effect.
func TestOutageIsNoticedByCallsThatLeave(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		t.Run(how, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				store := d.store()
				call, open := d.caller(store, false), d.caller(store, true)
				code, _ := call("a", 2*time.Second)
				require.Equal(t, codes.OK, code)
				away(d.client)
				for range 2 {
					code, took := call("b", 2*time.Second)
					require.Equal(t, codes.DeadlineExceeded, code)
					require.Equal(t, 2*time.Second, took)
				}
				code, took := call("b", 1500*time.Millisecond)
				require.Equal(t, codes.DeadlineExceeded, code)
				require.Equal(t, 1500*time.Millisecond, took)
				for range 10 {
					code, took = call("b", 2*time.Second)
					require.Equal(t, codes.Unavailable, code)
					require.Zero(t, took, "the outage is known")
				}
				time.Sleep(900 * time.Millisecond)
				code, took = open("c", 2*time.Second)
				require.Equal(t, codes.OK, code, "with FailOpen it runs")
				require.LessOrEqual(t, took, time.Second)
			})
		})
	}
}

// A710: what clients that leave have seen of a healthy etcd is no outage: others are answered, or the clients left too soon to
// know, or at times too far from each other.
func TestCallsThatLeaveAHealthyEtcd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		patience, pause time.Duration
		others          bool
	}{
		"others are answered": {2 * time.Second, 0, true},
		"too soon to know":    {400 * time.Millisecond, 0, false},
		"far from each other": {2 * time.Second, 6 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				call := d.caller(d.store(), false)
				code, _ := call("a", time.Minute)
				require.Equal(t, codes.OK, code)
				for n := range 20 {
					d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
						return etcdfake.Fault{DropRequest: m.Method == "Range" || m.Method == "Txn"}
					})
					code, took := call("b", c.patience)
					require.Equal(t, codes.DeadlineExceeded, code, n)
					require.Equal(t, c.patience, took, n)
					if c.others {
						d.client.Inject(nil)
						code, _ = call("other"+string(rune('a'+n)), time.Minute)
						require.Equal(t, codes.OK, code)
					}
					time.Sleep(c.pause)
				}
			})
		})
	}
}
