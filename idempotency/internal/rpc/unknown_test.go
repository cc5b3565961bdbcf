package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/etcdkit/etcdkit/idempotency"
)

// unknownField returns the fingerprint of a message with one field that the program does not know.
func unknownField(t *testing.T, value []byte) idempotency.Fingerprint {
	m := new(emptypb.Empty)
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), value))
	return sumOf(t, m)
}

// V12: two texts in a field that the program does not know, which can be read as the fields of one message in two orders, had one
// fingerprint. A message with a map has one in each order of its entries.
func TestTextInAnUnknownField(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"0A8B", "8B0A"}, {"8A0001", "008A01"}, {"0é8B", "8B0é"}} {
		require.NotEqual(t, unknownField(t, []byte(pair[0])), unknownField(t, []byte(pair[1])), pair)
	}
	entry := func(key, value string) (b []byte) {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), key)
		return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), value)
	}
	inMap := func(entries ...[]byte) (b []byte) {
		for _, e := range entries {
			b = protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), e)
		}
		return b
	}
	const long = "a key of more than thirty-two characters"
	for _, other := range [][]byte{entry(long, long), {}} {
		one := entry("a", "A")
		require.Equal(t, unknownField(t, inMap(one, other)), unknownField(t, inMap(other, one)))
		require.False(t, readable(inMap(other, other)))
	}
}
