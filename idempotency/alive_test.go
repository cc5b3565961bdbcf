package idempotency

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// What the sessions in etcd show of the process of a lost attempt.
func TestSessionsShowAProcess(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/p", "ns")
	require.NoError(t, err)
	alive := func(lease int64, id, owner string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(space.Session(lease).Alive()), Value: []byte(record.Session{ID: id, Owner: owner}.Encode())}
	}
	exist := &sessions{leases: map[int64]bool{}, named: map[begunBy]bool{}}
	exist.take(space, []*mvccpb.KeyValue{
		alive(1, "a", "web-1"), alive(2, "", "of-before"),
		{Key: []byte(space.Session(3).Alive()), Value: []byte("not readable")},
		{Key: []byte(space.Session(4).Notice(7, space.Root()+"x")), Value: []byte(record.Session{ID: "notice", Owner: "web-4"}.Encode())},
	})
	for name, tt := range map[string]struct {
		of   begunBy
		want presence
	}{
		"on its lease":                                   {begunBy{1, "a", "web-1"}, present},
		"on another lease":                               {begunBy{9, "a", "web-1"}, renewed},
		"a restarted process of the same name":           {begunBy{9, "b", "web-1"}, unseen},
		"of a release before the IDs":                    {begunBy{9, "", "of-before"}, renewed},
		"of a release before the IDs, its name is used":  {begunBy{9, "", "web-1"}, unseen},
		"of this release, its name is that of a process": {begunBy{9, "c", "of-before"}, unseen},
		"a value that cannot be read, on its lease":      {begunBy{3, "d", "web-3"}, present},
		"no presence key":                                {begunBy{4, "notice", "web-4"}, unseen},
		"no session":                                     {begunBy{8, "e", "web-8"}, unseen},
	} {
		require.Equal(t, tt.want, exist.shows(tt.of), name)
	}
}
