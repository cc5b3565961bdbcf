package integration

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Q13: an attempt that takes over makes a call of connect's client with the key that the lost one has sent,
// although the client encodes the message's map in another order.
func TestConnectClientWithinAnAttempt(t *testing.T) {
	t.Parallel()
	for name, dialect := range dialects {
		for _, procedure := range []string{payUnary, payServer} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s, store := serveConnect(t, nil), stores(t)[0]
				s.Client().Transport = &idemhttp.Transport{Base: s.Client().Transport}
				for n := range 3 {
					a, _, err := store.Begin(ctxT(t), idempotency.Key{Op: "order", ID: "k"}, nil)
					require.NoError(t, err)
					require.Equal(t, n+1, a.Attempt())
					_, header, err := s.callIn(a.Context(), procedure, "", dialect)
					require.NoError(t, err)
					require.Equal(t, n > 0, header.Get("Idempotent-Replayed") == "true")
					require.NoError(t, a.Abandon(ctxT(t)))
				}
				require.EqualValues(t, 1, s.calls.Load())
			})
		}
	}
}

// A96: the body of a client stream can be read only once. Within an attempt such a call is refused, and
// its error says what it needs.
func TestConnectClientStreamWithinAnAttempt(t *testing.T) {
	t.Parallel()
	for name, dialect := range dialects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveConnect(t, nil)
			s.Client().Transport = &idemhttp.Transport{Base: s.Client().Transport}
			a, _, err := stores(t)[0].Begin(ctxT(t), idempotency.Key{Op: "order", ID: "k"}, nil)
			require.NoError(t, err)
			stream := connect.NewClient[structpb.Struct, structpb.Struct](s.Client(), s.URL+payClient, dialect...).CallClientStream(a.Context())
			_ = stream.Send(new(structpb.Struct))
			_, err = stream.CloseAndReceive()
			require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey")
			require.Zero(t, s.calls.Load())
			_, _, err = s.callIn(idemhttp.WithKey(a.Context(), a.ChildKey("charge")), payClient, "", dialect)
			require.NoError(t, err)
			require.EqualValues(t, 1, s.calls.Load())
			require.NoError(t, a.Release(ctxT(t)))
		})
	}
}
