package etcdfake

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A copy of a message is equal to it, has nothing of what was there before, and keeps it when the message changes: by the
// code of etcd's messages as by gRPC's codec.
func TestCopyInto(t *testing.T) {
	t.Parallel()
	fresh := func() *etcdserverpb.PutRequest {
		return &etcdserverpb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: 7}
	}
	for name, copied := range map[string]func(dst, src any){
		"copyInto": func(dst, src any) { copyInto(dst, src) },
		"gRPC's codec": func(dst, src any) {
			size, err := byCodec(dst, src)
			require.NoError(t, err)
			require.Equal(t, copyInto(fresh(), src), size)
		},
	} {
		src, dst := fresh(), &etcdserverpb.PutRequest{Key: []byte("another key"), PrevKv: true}
		copied(dst, src)
		src.Key[0], src.Value[0] = 'x', 'x'
		require.Equal(t, fresh().String(), dst.String(), name)
	}
	c, _ := clone(fresh())
	require.Equal(t, fresh().String(), c.(*etcdserverpb.PutRequest).String()) //nolint:forcetypeassert // of a message of that type
}
