package keyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The keys of changes are in the order of their times, and no other key below them is etcdkit's.
func TestChangeKeys(t *testing.T) {
	t.Parallel()
	s, err := New("/etcdkit", "shop")
	require.NoError(t, err)
	require.Equal(t, "/etcdkit/v1/shop/change/00000000000000ff-x7", s.Change(255, "x7"))
	require.Less(t, s.Change(9, "z"), s.Change(10, "a"))
	require.False(t, Foreign(s, s.Change(255, "x7")))
	for _, key := range []string{"x", "00000000000000ff", "00000000000000ff-", "ff-x", "00000000000000ff-x/y"} {
		require.True(t, Foreign(s, s.Changes()+key), key)
	}
}
