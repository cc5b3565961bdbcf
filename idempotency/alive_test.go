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
	exist := &sessions{leases: map[int64]bool{}, named: map[string]bool{}}
	exist.take(space, []*mvccpb.KeyValue{
		alive(1, "a", "web-1"),
		{Key: []byte(space.Session(4).Notice(7, space.Root()+"x")), Value: []byte(record.Session{ID: "notice", Owner: "web-4"}.Encode())},
	})
	for name, tt := range map[string]struct {
		of   begunBy
		want presence
	}{
		"on its lease":                         {begunBy{1, "a"}, present},
		"on another lease":                     {begunBy{9, "a"}, renewed},
		"a restarted process of the same name": {begunBy{9, "b"}, unseen},
		"a record without an ID":               {begunBy{9, ""}, unseen},
		"no presence key":                      {begunBy{4, "notice"}, unseen},
		"no session":                           {begunBy{8, "e"}, unseen},
	} {
		require.Equal(t, tt.want, exist.shows(tt.of), name)
	}

	// A391: a session that cannot be read counted for its lease alone, as if it could not be that of an attempt on another.
	for _, value := range []string{`{"v":2,"id":"d"}`, "not readable"} {
		unread := &sessions{leases: map[int64]bool{}, named: map[string]bool{}}
		unread.take(space, []*mvccpb.KeyValue{alive(1, "a", "web-1"), {Key: []byte(space.Session(3).Alive()), Value: []byte(value)}})
		for of, want := range map[begunBy]presence{{3, "d"}: present, {9, "d"}: possible, {9, "a"}: renewed} {
			require.Equal(t, want, unread.shows(of), "%s, %v", value, of)
		}
	}
}
