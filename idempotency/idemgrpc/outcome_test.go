package idemgrpc

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// form is what encode stores.
func form(resp any, failed *status.Status, most int) string {
	stored, _ := encode(resp, failed, most)
	return string(stored)
}

// The form in which outcomes are stored, as the first release has written it.
func TestGolden(t *testing.T) {
	t.Parallel()
	const message = "idemgrpc 1 0 -\n\n/type.googleapis.com/google.protobuf.StringValue\x12\x04\n\x02hi"
	require.Equal(t, message, form(wrapperspb.String("hi"), status.New(codes.OK, ""), 1000))
	resp, failed, bad := decode([]byte(message))
	require.NoError(t, errors.Join(failed, bad))
	require.True(t, proto.Equal(wrapperspb.String("hi"), resp.(proto.Message)))

	const failure = "idemgrpc 1 5 -\n\b\x05\x12\x02no"
	require.Equal(t, failure, form(nil, status.New(codes.NotFound, "no"), 1000))
	_, failed, bad = decode([]byte(failure))
	require.NoError(t, bad)
	require.Equal(t, status.Error(codes.NotFound, "no").Error(), failed.Error())

	const omitted = "idemgrpc 1 0 omitted\n"
	require.Equal(t, omitted, form(wrapperspb.String("hi"), status.New(codes.OK, ""), 10))
	require.Equal(t, omitted, form("no message", status.New(codes.OK, ""), 1000))
	_, _, bad = decode([]byte(omitted))
	require.ErrorIs(t, bad, errOmitted)

	const lost = "idemgrpc 1 5 omitted\n"
	require.Equal(t, lost, form(nil, status.New(codes.NotFound, "no"), 1))
	_, failed, bad = decode([]byte(lost))
	require.NoError(t, bad)
	require.Equal(t, codes.NotFound, status.Code(failed))

	for _, text := range []string{
		"", "\n", "{}", "idemgrpc 1 0 -", "idemgrpc 2 0 -\n", "idemgrpc 1 0\n", "idemgrpc 1 x -\n", "idemgrpc 1 -1 -\n",
		"idemgrpc 1 5 -\n", "idemgrpc 1 5 -\n\xff", "idemgrpc 1 0 -\n\xff", "idemgrpc 1 0 -\n", "idemgrpc 1 0 -\n\n\x04none",
	} {
		_, _, bad := decode([]byte(text))
		require.Error(t, bad, text)
	}
}
