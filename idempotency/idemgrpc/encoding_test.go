package idemgrpc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// order is a message with a map of twelve entries.
func order(t testing.TB, cents int) proto.Message {
	var fields []any
	for n := range 12 {
		fields = append(fields, fmt.Sprint("field", n), n)
	}
	return message(t, append(fields, "cents", cents)...)
}

// encoders return messages that say the same each time, in other bytes: protobuf encodes a map in
// another order each time.
var encoders = map[string]func(t testing.TB, cents int) proto.Message{
	"a map in an Any": func(t testing.TB, cents int) proto.Message {
		m, err := anypb.New(order(t, cents))
		require.NoError(t, err)
		return m
	},
	"an Any in an Any": func(t testing.TB, cents int) proto.Message {
		inner, err := anypb.New(order(t, cents))
		require.NoError(t, err)
		m, err := anypb.New(inner)
		require.NoError(t, err)
		return m
	},
	"a map in an Any of an unknown type": func(t testing.TB, cents int) proto.Message {
		b, err := proto.Marshal(order(t, cents))
		require.NoError(t, err)
		return &anypb.Any{TypeUrl: "type.googleapis.com/shop.Order", Value: b}
	},
	"a map in an unknown field": func(t testing.TB, cents int) proto.Message {
		b, err := proto.Marshal(order(t, cents))
		require.NoError(t, err)
		m := new(emptypb.Empty)
		require.NoError(t, proto.Unmarshal(protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), b), m))
		return m
	},
	"an unknown map": func(t testing.TB, cents int) proto.Message {
		b, err := proto.Marshal(order(t, cents))
		require.NoError(t, err)
		m := new(emptypb.Empty)
		require.NoError(t, proto.Unmarshal(b, m))
		return m
	},
}

// A97: a call that is repeated with its key is a duplicate, however its message was encoded.
func TestRepeatedCallsInOtherBytes(t *testing.T) {
	t.Parallel()
	serve := fleet(t, 1, nil)[0].unary(nil)
	for name, encode := range encoders {
		calls := 0
		call := func(cents int) (any, error) {
			ctx := metadata.NewIncomingContext(ctxT(t), metadata.Pairs("idempotency-key", fmt.Sprintf("%q", name)))
			return serve(ctx, encode(t, cents), &grpc.UnaryServerInfo{FullMethod: payMethod}, func(context.Context, any) (any, error) {
				calls++
				return message(t, "run", calls), nil
			})
		}
		for range 10 {
			resp, err := call(1)
			require.NoError(t, err, name)
			require.True(t, proto.Equal(message(t, "run", 1), resp.(proto.Message)), name)
		}
		_, err := call(2)
		refused(t, err, codes.FailedPrecondition, idemgrpc.ReasonReused)
		require.Equal(t, 1, calls, name)
	}
}

// A96: an attempt that takes over makes the same calls with the same keys, however their messages
// are encoded.
func TestCallKeysInOtherBytes(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	cc, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	keysOf := func(encode func(testing.TB, int) proto.Message, id string) (keys []string) {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: id}, nil)
		require.NoError(t, err)
		for _, cents := range []int{1, 2, 1} {
			require.NoError(t, idemgrpc.UnaryClientInterceptor(nil)(a.Context(), payMethod, encode(t, cents), nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				md, _ := metadata.FromOutgoingContext(ctx)
				keys = append(keys, md.Get("idempotency-key")...)
				return nil
			}))
		}
		require.NoError(t, a.Abandon(ctxT(t)))
		return keys
	}
	for name, encode := range encoders {
		first := keysOf(encode, name)
		require.Len(t, map[string]bool{first[0]: true, first[1]: true, first[2]: true}, 3, name)
		for range 5 {
			require.Equal(t, first, keysOf(encode, name), name)
		}
	}
}

// A101: a key in quotes, as the header of the draft has it, is the same key without them, so a gateway can
// pass the header on.
func TestKeyInQuotes(t *testing.T) {
	t.Parallel()
	s := fleet(t, 1, nil)[0].serve(nil, paid, grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor(nil)))
	require.NoError(t, s.pay(`"k3"`).err)
	require.True(t, s.pay("k3").replayed)
	require.True(t, s.pay(`"k3";from=gateway`).replayed)
	for _, key := range []string{"k3", `a "b" ~`, "a,b", `\`} {
		ctx := idemgrpc.WithKey(ctxT(t), key)
		require.NoError(t, s.call(ctx, message(t)).err, key)
		require.True(t, s.call(ctx, message(t)).replayed, key)
	}
	require.EqualValues(t, 4, s.calls.Load())
}
