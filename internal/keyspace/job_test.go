package keyspace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func instants() *rapid.Generator[time.Time] {
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
	return rapid.Map(rapid.Int64Range(first, last), time.UnixMilli)
}

// The text of a tick sorts as the instants do, whatever their zone: etcd compares
// ranges of them.
func TestTicksSortAsInstants(t *testing.T) {
	j := space(t, "ns").Job("a/b%")
	rapid.Check(t, func(t *rapid.T) {
		a, b := instants().Draw(t, "a"), instants().Draw(t, "b")
		zone := time.FixedZone("z", rapid.IntRange(-14*3600, 14*3600).Draw(t, "zone"))
		require.Equal(t, a.Before(b), j.Run(a) < j.Run(b.In(zone)))
		require.Equal(t, a.Equal(b), j.Floor(a.In(zone)) == j.Floor(b))
		back, ok := j.ParseRun(j.Run(a.In(zone)))
		require.True(t, ok)
		require.True(t, back.Equal(a))
		back, ok = j.ParseFloor(j.Floor(a))
		require.True(t, ok)
		require.True(t, back.Equal(a))
		_, ok = j.ParseRun(j.Floor(a))
		require.False(t, ok)
	})
}

// J24: an hour that comes twice has two ticks of the same time of day, and one that the
// clocks leave out has none that another zone would not have, too.
func TestTicksOfSummerTime(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("there is no zone database: %v", err)
	}
	j := space(t, "ns").Job("x")
	first := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC).In(zone)
	second := first.Add(time.Hour)
	require.Equal(t, first.Format("15:04"), second.Format("15:04"))
	require.NotEqual(t, j.Run(first), j.Run(second))
	require.Less(t, j.Run(first), j.Run(second))
	require.Equal(t, j.Runs()+"2026-10-25T00:30:00.000Z", j.Run(first))
}

func TestTicksRefuseOtherSpellings(t *testing.T) {
	j := space(t, "ns").Job("x")
	good := j.Run(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))
	_, ok := j.ParseRun(good)
	require.True(t, ok)
	for _, key := range []string{"", j.Runs(), good + "x", good[:len(good)-1], j.Runs() + "2026-11-21T08:00:00Z", j.Runs() + "2026-13-21T08:00:00.000Z",
		j.Runs() + "2026-11-21T09:00:00.000+01:00", j.Runs() + "2026-11-21t08:00:00.000z", j.Runs() + "2026-11-21T08:00:00,000Z", j.Floors() + good[len(j.Runs()):]} {
		_, ok := j.ParseRun(key)
		require.False(t, ok, key)
	}
}

// No key of one job lies in the range of another, and a name comes back from its keys.
func TestJobsDoNotMeet(t *testing.T) {
	name := rapid.StringMatching(`[ab/%\x00é\-1n]{1,4}`).Filter(func(s string) bool { return CheckJob(s) == nil })
	s := space(t, "ns")
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		at := instants().Draw(t, "at")
		ja, jb := s.Job(a), s.Job(b)
		for _, key := range []string{jb.Lock(), jb.Cooldown(), jb.Pause(), jb.Settings(), jb.RequestedRun(), jb.Operated(), jb.Run(at), jb.Floor(at)} {
			require.True(t, jb.Owns(key))
			require.False(t, jb.Owns(key+"x"))
			require.Equal(t, a == b, inRange(key, ja.Range), "%s, %s", key, ja.Range)
			require.True(t, inRange(key, s.Jobs()))
			got, _, ok := s.ParseJob(key)
			require.True(t, ok)
			require.Equal(t, b, got)
			require.False(t, inRange(key, s.Clocks()))
		}
		require.True(t, inRange(s.Clock(rapid.Int64().Draw(t, "lease")), s.Clocks()))
		for _, q := range []Queue{s.Queue(Semaphore, b), s.Queue(Mutex, b)} {
			require.False(t, inRange(q.Range, s.Jobs()))
		}
	})
	for _, key := range []string{"", s.Jobs(), s.Jobs() + "x", s.Jobs() + "%zz/lock", s.Jobs() + "%61/lock", s.Clocks() + "x/y"} {
		_, _, ok := s.ParseJob(key)
		require.False(t, ok, key)
	}
}

func FuzzParseTick(f *testing.F) {
	j := Space{root: "/etcdkit/v1/ns/"}.Job("x")
	f.Add(j.Run(time.UnixMilli(0)))
	f.Add(j.Runs())
	f.Add(j.Runs() + "2026-11-21T08:00:00.0Z")
	f.Fuzz(func(t *testing.T, key string) {
		if at, ok := j.ParseRun(key); ok && j.Run(at) != key {
			t.Fatalf("%q parsed as %v, which is %q", key, at, j.Run(at))
		}
	})
}

func FuzzParseJob(f *testing.F) {
	s := Space{root: "/etcdkit/v1/ns/"}
	f.Add(s.Job("a/b").Lock())
	f.Add(s.Jobs() + "%zz/lock")
	f.Fuzz(func(t *testing.T, key string) {
		if name, rest, ok := s.ParseJob(key); ok && s.Job(name).Range+rest != key {
			t.Fatalf("%q parsed as %q and %q", key, name, rest)
		}
	})
}
