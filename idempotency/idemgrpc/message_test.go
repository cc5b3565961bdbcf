package idemgrpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// A message that can only be compared byte by byte is compared so by a server; a client does not send it
// within an attempt without a key of its caller's.
func TestMessageComparedByBytes(t *testing.T) {
	t.Parallel()
	m := &anypb.Any{Value: []byte(strings.Repeat("\x08\x01", 1<<20))}
	sum, err := rpc.Fingerprint(m)
	require.ErrorIs(t, err, rpc.ErrByBytes)
	_, err = describeCall("target method", m)
	require.ErrorIs(t, err, rpc.ErrByBytes)
	payload, err := whole(t.Context(), "", m)
	require.NoError(t, err)
	require.Equal(t, sum, payload)
	require.Equal(t, sum, Fingerprint(m))
	_, err = whole(t.Context(), "", "no message")
	require.ErrorContains(t, err, "string is not a protobuf message")
}
