package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// chained calls a handler through interceptors, the first one in front.
func chained(ctx context.Context, req *structpb.Struct, h grpc.UnaryHandler, all ...grpc.UnaryServerInterceptor) (any, error) {
	if len(all) == 0 {
		return h(ctx, req)
	}
	return all[0](ctx, req, &grpc.UnaryServerInfo{FullMethod: payMethod}, func(ctx context.Context, _ any) (any, error) {
		return chained(ctx, req, h, all[1:]...)
	})
}

func incoming(ctx context.Context, key string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("idempotency-key", key))
}

// otherStore returns a second store of an instance.
func (in instance) otherStore() instance {
	st, err := idempotency.NewStore(in.sess, "other", &idempotency.Options{SingleTenant: true})
	require.NoError(in.t, err)
	return instance{st, in.t, in.sess, in.client}
}

// V7: a second interceptor that passes a call on, since it is of the same store, or of another one whose Methods leave
// the call out, swallowed the handler's word: the outcome was unknown although nothing was done,
// and a failure for good executed again. The client gets the status without the word.
func TestWordBehindASecondInterceptor(t *testing.T) {
	t.Parallel()
	none := &idemgrpc.Options{Methods: func(string) bool { return false }}
	for _, policy := range []idempotency.LostPolicy{idempotency.Refuse, idempotency.TakeOver} {
		in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: policy})[0]
		for name, second := range map[string][]grpc.UnaryServerInterceptor{
			"none": nil, "the-same-store": {in.unary(nil)}, "other-methods": {in.otherStore().unary(none)},
		} {
			words := []error{idempotency.NothingDone(status.Error(codes.Unavailable, "not sent")), idempotency.Permanent(status.Error(codes.Aborted, "stolen"))}
			calls := 0
			pay := func() *status.Status {
				_, err := chained(incoming(ctxT(t), "k-"+name), message(t), func(context.Context, any) (any, error) {
					calls++
					return nil, words[min(calls, 2)-1]
				}, append([]grpc.UnaryServerInterceptor{in.unary(nil)}, second...)...)
				return status.Convert(err)
			}
			require.Equal(t, "not sent", pay().Message(), name)
			for range 2 {
				require.Equal(t, "stolen", pay().Message(), name)
			}
			require.Equal(t, 2, calls, name)
		}
	}
}

// V5, V6: Client ends with the client behind the interceptors of two stores, and what is called with it has the
// attempt's keys.
func TestClientOfTwoStores(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	ctx, leave := context.WithTimeout(incoming(ctxT(t), "k"), soon)
	until, _ := ctx.Deadline()
	_, err := chained(ctx, message(t), func(ctx context.Context, _ any) (any, error) {
		client := idemgrpc.Client(ctx)
		require.NoError(t, client.Err())
		own, _ := idempotency.FromContext(ctx)
		a, ok := idempotency.FromContext(client)
		require.True(t, ok)
		require.Same(t, own, a)
		at, _ := client.Deadline()
		require.True(t, at.Equal(until))
		leave()
		<-client.Done()
		require.ErrorIs(t, client.Err(), context.Canceled)
		require.NoError(t, ctx.Err())
		return message(t), nil
	}, in.unary(nil), in.otherStore().unary(nil))
	require.NoError(t, err)
}
