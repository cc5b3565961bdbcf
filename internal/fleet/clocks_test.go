package fleet_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// put is a key as a list shows it.
func put(s *fleet.State, key, value string, lease, now int64) {
	s.Put(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 1, ModRevision: 1, Lease: lease}, now)
}

// What was written before the first look shows a clock that is ahead, if its time is still to come, in whatever order it is
// read; a time that has passed shows nothing but when a process has written its time last. One that is to come by less than clocks may
// differ shows no more: a clock that was 5 s ahead agreed until the process wrote again (A405 in internal/proof/tested-failures.md).
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
	put(s, space.Clock(12), at("web-12", now-1000), 12, now)
	put(s, space.Session(12).Alive(), at("web-12", now+7000), 12, now) // its clock was ahead, and has been set since
	put(s, space.Session(13).Alive(), at("web-13", now-500_000), 13, now)
	put(s, space.Clock(13), at("web-13", now+40), 13, now) // written 4.96 s ago by a clock that is 5 s ahead, or just now by one that agrees
	require.Equal(t, []fleet.Clock{
		{Lease: 7, Owner: "web-7", Measured: true, Lead: 5000}, {Lease: 8, Owner: "web-8", Measured: true, Lead: 3000, Beat: now + 3000}, {Lease: 9, Owner: "web-9", Beat: now - 90_000},
		{Lease: 12, Owner: "web-12", Beat: now - 1000}, {Lease: 13, Owner: "web-13", Beat: now + 40},
	}, s.Clocks(10))
	for _, lease := range []int64{7, 8, 10} {
		s.Remove(space.Session(lease).Alive(), 2, now)
	}
	_, known := s.Skew(now)
	require.False(t, known, "no clock of the others is measured")
	s.Remove(space.Clock(9), 2, now)
	require.Zero(t, s.ClockOf(9).Beat)
}

// The notes of requests are kept for a search, of a record as it is now, and within a bound of memory.
func TestNotes(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	s := fleet.NewState(space, true)
	keys := space.Store("orders")
	write := func(to *fleet.State, id, note string) {
		put(to, keys.Entry("acme", "pay", id).Record, record.Attempt{State: record.AttemptDone, Number: 1, Note: note}.Encode(), 0, 1)
	}
	write(s, "1", "order 12")
	write(s, "2", "")
	ref := keys.Entry("acme", "pay", "1").Ref
	require.Equal(t, map[string]string{ref: "order 12"}, s.Stores["orders"].Notes())
	write(s, "1", "order 13")
	require.Equal(t, map[string]string{ref: "order 13"}, s.Stores["orders"].Notes())
	s.Remove(keys.Entry("acme", "pay", "1").Record, 2, 1)
	require.Empty(t, s.Stores["orders"].Notes())
	require.False(t, s.Unnoted)

	long := strings.Repeat("x", 256)
	for n := range 20_000 {
		write(s, strconv.Itoa(n), long)
	}
	kept := 0
	for ref, note := range s.Stores["orders"].Notes() {
		kept += len(ref) + len(note)
	}
	require.LessOrEqual(t, kept, 4<<20)
	require.Greater(t, kept, 4<<20-1024)
	require.True(t, s.Unnoted)

	plain := fleet.NewState(space, false)
	write(plain, "1", "order 12")
	require.Empty(t, plain.Stores["orders"].Notes(), "metrics need none")
}

// One change that took long, as during an election of etcd's leader, shows no clock that is behind, long after the clock was
// measured; a clock that is set back is shown with the second change (A310 in internal/proof/tested-failures.md).
func TestClocksOfASlowChange(t *testing.T) {
	t.Parallel()
	f, space, lease, beat := beating(t)
	ctx := testkit.Context(t)
	var clock atomic.Int64
	clock.Store(1_000_000_000)
	fl := listed(t, &reads{before: func(context.Context) {}}, f, space, fleet.Options{Now: func() time.Time { return time.UnixMilli(clock.Load()) }})
	for _, step := range []struct {
		what         string
		passed, lead int64 // milliseconds since the step before; by the clock of the process, with the way
		shown        int64
	}{
		{"it agrees", 0, 0, 0},
		{"a change that is slow within two minutes", 100_000, -3000, 0},
		{"one that is slow after that", 30_000, -3000, 0},
		{"another one of the same election", 1000, -2500, 0},
		{"it agrees", 3600_000, -5, -5},
		{"it is set back", 130_000, -3600_000, -5},
		{"it writes again", 11_000, -3600_010, -3600_000},
		{"it is set right", 1000, 2, 2},
	} {
		now := clock.Add(step.passed)
		require.NoError(t, fl.Await(ctx, beat(ctx, now+step.lead)))
		fl.View(func(st *fleet.State, _ fleet.Meta) {
			require.Equal(t, fleet.Clock{Lease: lease, Owner: "web-7", Measured: true, Lead: step.shown}, st.ClockOf(lease), step.what)
		})
	}
}
