package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

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
