package keyspace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Two keys of callers are one entry only if all three parts are equal, wherever one ends and
// the next begins; and no entry's range contains a key of another. Nothing of them is in
// the clear.
func TestEntries(t *testing.T) {
	st := space(t, "ns").Store("a/b%")
	other := space(t, "ns").Store("a/b")
	require.NotEqual(t, st.Range, other.Range)
	require.False(t, strings.HasPrefix(st.Range, other.Range))
	parts := rapid.StringN(0, 3, 9)
	rapid.Check(t, func(t *rapid.T) {
		a := [3]string{parts.Draw(t, "scope"), parts.Draw(t, "op"), parts.Draw(t, "id")}
		b := [3]string{parts.Draw(t, "scope"), parts.Draw(t, "op"), parts.Draw(t, "id")}
		x, y := st.Entry(a[0], a[1], a[2]), st.Entry(b[0], b[1], b[2])
		require.Equal(t, a == b, x.Record == y.Record)
		require.Equal(t, a == b, strings.HasPrefix(x.Record, y.Record))
		require.Equal(t, a == b, strings.HasPrefix(x.Part(1, 2), y.AllResults()))
		require.True(t, strings.HasPrefix(x.Record, st.Scope(a[0])))
		require.Equal(t, a[0] == b[0], strings.HasPrefix(x.Record, st.Scope(b[0])))
		require.False(t, strings.HasPrefix(x.Part(1, 2), st.Records()))
		require.False(t, strings.HasPrefix(x.Part(16, 2), x.Results(1)))
		back, ok := st.Ref(x.Ref)
		require.True(t, ok)
		require.Equal(t, x, back)
	})
	require.Equal(t, st.Records()+"5f161c9149882e0e/hSK4OVqhFyhEo-efm3u49S_pW4YfMYxbUwGXUzX76X8", st.Entry("scope", "op", "id").Record, "other releases find it there")
	require.NotContains(t, st.Entry("SCOPE", "OP", "ID").Record, "ID")
	require.NotEqual(t, st.Entry("a", "b", "c").Ref, st.Entry("ab", "", "c").Ref)
	for n := range 300 {
		require.Less(t, st.Entry("a", "b", "c").Part(1, n), st.Entry("a", "b", "c").Part(1, n+1))
	}
}

// The name of a store is found in each of its keys, and in no others.
func TestParseStore(t *testing.T) {
	s := space(t, "ns")
	st := s.Store("a%")
	for _, key := range []string{st.Entry("scope", "op", "id").Record, st.Results(), st.Range + "foreign"} {
		name, ok := s.ParseStore(key)
		require.True(t, ok, key)
		require.Equal(t, "a%", name)
	}
	for _, key := range []string{s.Stores(), s.Stores() + "a", s.Stores() + "a%/r/", s.Stores() + "%2F/r/", s.Jobs() + "a/r/"} {
		_, ok := s.ParseStore(key)
		require.False(t, ok, key)
	}
}

func FuzzParseEntry(f *testing.F) {
	s, _ := New("/p", "ns")
	st := s.Store("x")
	f.Add(st.Entry("a", "b", "c").Record)
	f.Add(st.Records() + "x/y/z")
	f.Fuzz(func(t *testing.T, key string) {
		if e, ok := st.ParseEntry(key); ok {
			require.Equal(t, e.Record, key)
		}
	})
}
