package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// A foreign key is no request, as long as it is what the view has shown: then it counts less. One that is
// gone is in no count, and one that was written since may be a request.
func TestForeignKeysAreNotCounted(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("test", "ns")
	require.NoError(t, err)
	keys := space.Queue(keyspace.Mutex, "m")
	r := &Reader{Keys: keys, Limit: limit.NewFixed(1)}
	foreign := []mirror.ForeignKey{{Key: keys.Light + "there", Mod: 5}, {Key: keys.Light + "gone", Mod: 6}, {Key: keys.Light + "written", Mod: 7}}
	found := func(kvs ...*mvccpb.KeyValue) *etcdserverpb.ResponseOp {
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{
			ResponseRange: &etcdserverpb.RangeResponse{Kvs: kvs, Count: int64(len(kvs))},
		}}
	}
	counted := found()
	counted.GetResponseRange().Count = 4
	require.Len(t, r.Counts(foreign), 4)
	tally := r.Counted(foreign, []*etcdserverpb.ResponseOp{counted, found(&mvccpb.KeyValue{ModRevision: 5}), found(), found(&mvccpb.KeyValue{ModRevision: 9})})
	require.Equal(t, Tally{Light: 3}, tally)
}
