package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A523: a Txn of several that were gathered writes as well, so that its answer shows that etcd's history was taken back.
func TestWrites(t *testing.T) {
	t.Parallel()
	read, put, remove := clientv3.OpGet("a"), clientv3.OpPut("a", ""), clientv3.OpDelete("a")
	in := func(then, otherwise clientv3.Op) clientv3.Op {
		return clientv3.OpTxn(nil, []clientv3.Op{then}, []clientv3.Op{otherwise})
	}
	for _, op := range []clientv3.Op{put, remove, in(put, read), in(read, remove), in(read, in(read, put))} {
		require.True(t, writes(op))
	}
	for _, op := range []clientv3.Op{read, in(read, read), in(read, in(read, read))} {
		require.False(t, writes(op))
	}
}
