package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// put is a key as a list shows it.
func put(s *fleet.State, key, value string, lease, now int64) {
	s.Put(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 1, ModRevision: 1, Lease: lease}, now)
}

// What was written before the first look shows a clock that is ahead, if its time is still to come, in whatever order it is
// read; a time that has passed shows nothing but when a process has written its time last.
func TestClocksOfAList(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	s := fleet.NewState(space, true)
	at := func(owner string, ms int64) string { return record.Clock{Owner: owner, AtMS: ms}.Encode() }
	const now = 1_000_000
	put(s, space.Clock(8), at("web-8", now+3000), 8, now)
	put(s, space.Clock(9), at("web-9", now-90_000), 9, now)
	put(s, space.Session(7).Alive(), at("web-7", now+5000), 7, now)
	put(s, space.Session(8).Alive(), at("web-8", now-500_000), 8, now)
	put(s, space.Session(9).Alive(), at("web-9", now-500_000), 9, now)
	put(s, space.Session(10).Alive(), at("console", now+9000), 10, now)
	put(s, space.Clock(11), at("gone", now+9000), 11, now)
	require.Equal(t, []fleet.Clock{
		{Lease: 7, Owner: "web-7", Measured: true, Lead: 5000}, {Lease: 8, Owner: "web-8", Measured: true, Lead: 3000, Beat: now + 3000}, {Lease: 9, Owner: "web-9", Beat: now - 90_000},
	}, s.Clocks(10))
	s.Remove(space.Clock(9))
	require.Zero(t, s.ClockOf(9).Beat)
}
