package keyspace

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"
)

func space(t require.TestingT, namespace string) Space {
	s, err := New(DefaultPrefix, namespace)
	require.NoError(t, err)
	return s
}

func TestEscapeIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), string(rapid.SliceOf(rapid.Byte()).Draw(t, "b"))
		for _, s := range []string{a, b} {
			back, err := url.PathUnescape(escape(s))
			require.NoError(t, err)
			require.Equal(t, s, back)
			require.NotContains(t, escape(s), "/")
		}
		require.Equal(t, a == b, escape(a) == escape(b))
	})
}

// TestRangesDoNotMeet draws pairs of names, near ones above all, and asserts
// that no key of one lies in a range of the other.
func TestRangesDoNotMeet(t *testing.T) {
	name := rapid.StringMatching(`[ab/%\x00é\-1n]{1,4}`).Filter(func(s string) bool { return CheckName(s) == nil })
	// near draws a name that is the same, or begins with it, or is any other.
	near := func(t *rapid.T, s, what string) string {
		switch other := name.Draw(t, what); rapid.IntRange(0, 2).Draw(t, "near") {
		case 0:
			return s
		case 1:
			return s + other
		default:
			return other
		}
	}
	kind := rapid.SampledFrom([]Kind{Semaphore, Mutex, Election, Rate})
	rapid.Check(t, func(t *rapid.T) {
		nsA, a, kindA := name.Draw(t, "namespace A"), name.Draw(t, "name A"), kind.Draw(t, "kind A")
		own := space(t, nsA).Queue(kindA, a)
		require.True(t, space(t, nsA).Queued(own.Slot(Slot{Lease: 1, Weight: 1})))
		require.True(t, space(t, nsA).Queued(own.ID("i")))
		nsB, b, kindB := near(t, nsA, "namespace B"), near(t, a, "name B"), kind.Draw(t, "kind B")
		if nsA == nsB && a == b && kindA == kindB {
			return
		}
		ga, gb := space(t, nsA).Queue(kindA, a), space(t, nsB).Queue(kindB, b)
		slot := Slot{Lease: rapid.Int64().Draw(t, "lease"), Number: 3, Weight: int64(rapid.IntRange(1, 20).Draw(t, "weight"))}
		for _, key := range []string{gb.Slot(slot), gb.Limit, gb.ID(rapid.String().Draw(t, "id"))} {
			require.False(t, inRange(key, ga.Range), "%s lies in the range of %s", key, ga.Range)
			_, ok := ga.ParseSlot(key)
			require.False(t, ok)
			require.Equal(t, nsA == nsB, inRange(key, space(t, nsA).Root()), "%s, %s", key, space(t, nsA).Root())
		}
	})
}

// The queue of a key holds no key of another key's, of the total or of the default, nor of another
// limiter's, whatever the texts are.
func TestRangesOfKeysDoNotMeet(t *testing.T) {
	text := rapid.StringMatching(`[ab/%\x00é\-1]{1,4}`)
	name := text.Filter(func(s string) bool { return CheckName(s) == nil })
	rapid.Check(t, func(t *rapid.T) {
		limiter, key := name.Draw(t, "name"), text.Draw(t, "key")
		other, next := rapid.OneOf(rapid.Just(limiter), name).Draw(t, "other"), rapid.OneOf(rapid.Just(key), rapid.Just(key+text.Draw(t, "tail")), text).Draw(t, "next")
		own, others := space(t, "ns").Limiter(limiter), space(t, "ns").Limiter(other)
		q := own.Key(key)
		require.Equal(t, q.Range, own.KeyRange(key))
		slot := Slot{Lease: rapid.Int64().Draw(t, "lease"), Number: 3, Weight: int64(rapid.IntRange(1, 20).Draw(t, "weight"))}
		require.True(t, space(t, "ns").Queued(q.Slot(slot)))
		member := space(t, "ns").Member(others.Total(), slot.Lease)
		require.False(t, space(t, "ns").Queued(member))
		foreign := []string{others.Default, others.Total().Slot(slot), others.Total().Limit, others.Total().ID("i"), member}
		if limiter != other {
			require.False(t, inRange(member, space(t, "ns").Members(own.Total())))
		}
		if limiter != other || key != next {
			k := others.Key(next)
			foreign = append(foreign, k.Slot(slot), k.Limit, k.ID("i"))
			for _, a := range []string{"i", "bi", "/i"} {
				require.NotEqual(t, q.ID("i"), k.ID(a))
			}
		}
		kind := rapid.SampledFrom([]Kind{Semaphore, Mutex, Election, Rate}).Draw(t, "kind")
		plain := space(t, "ns").Queue(kind, rapid.OneOf(rapid.Just(limiter), rapid.Just("limiter"), name).Draw(t, "plain"))
		foreign = append(foreign, plain.Slot(slot), plain.Limit, plain.ID("i"))
		for _, k := range []string{q.Slot(slot), q.Limit, q.ID("i"), own.Default, own.Total().Slot(slot), own.Total().ID("i"), member} {
			require.False(t, inRange(k, plain.Range), "%s lies in the range of %s", k, plain.Range)
			require.NotEqual(t, plain.ID("i"), k)
		}
		for _, f := range foreign {
			require.False(t, inRange(f, q.Range), "%s lies in the range of %s", f, q.Range)
			_, ok := q.ParseSlot(f)
			require.False(t, ok)
		}
	})
}

// inRange asks etcd's own client where a prefix ends.
func inRange(key, prefix string) bool {
	return key >= prefix && key < clientv3.GetPrefixRangeEnd(prefix)
}

func TestSlotRoundTrip(t *testing.T) {
	q := space(t, "ns").Queue(Semaphore, "a/b%")
	rapid.Check(t, func(t *rapid.T) {
		s := Slot{
			Lease:  rapid.Int64().Draw(t, "lease"),
			Number: rapid.IntRange(0, MaxSlot).Draw(t, "number"),
			Weight: int64(rapid.Int32Min(1).Draw(t, "weight")),
			Try:    rapid.Bool().Draw(t, "try"),
		}
		back, ok := q.ParseSlot(q.Slot(s))
		require.True(t, ok)
		require.Equal(t, s, back)
		require.Equal(t, s.Weight == 1, inRange(q.Slot(s), q.Light))
		require.Equal(t, s.Weight != 1, q.Limit < q.Slot(s) && q.Slot(s) < q.Light)
		require.Equal(t, s.Weight != 1, inRange(q.Slot(s), q.Heavy))
	})
}

func TestSlotRefusesOtherSpellings(t *testing.T) {
	q := space(t, "ns").Queue(Semaphore, "x")
	good := q.Slot(Slot{Lease: 0xabc, Number: 10, Weight: 1})
	heavy := q.Slot(Slot{Lease: 0xabc, Number: 10, Weight: 7})
	for _, key := range []string{
		"", q.Range, q.Limit, q.Requests, good + "x", good + "-try-try", strings.ToUpper(good),
		strings.Replace(heavy, "/heavy/7/", "/heavy/07/", 1), strings.Replace(heavy, "/heavy/7/", "/heavy/1/", 1),
		strings.Replace(heavy, "/heavy/7/", "/heavy/-7/", 1), strings.Replace(heavy, "/heavy/7/", "/heavy/9999999999/", 1),
		strings.Replace(good, "-000a", "-00A", 1), strings.Replace(good, "-000a", "-a", 1),
	} {
		_, ok := q.ParseSlot(key)
		require.False(t, ok, key)
	}
}

func TestNames(t *testing.T) {
	for _, s := range []string{"a", "größe", "with space", "a.b-c_d~", strings.Repeat("x", MaxName), "%41"} {
		require.NoError(t, CheckName(s), s)
	}
	for _, s := range []string{"", "a/b", "/", "a\x00", "\xff", "a\xffb", "\n", strings.Repeat("x", MaxName+1)} {
		require.Error(t, CheckName(s), "%q", s)
	}
	require.NoError(t, CheckID("any/bytes\x00\xff"))
	require.Error(t, CheckID(""))
	require.Error(t, CheckID(strings.Repeat("x", MaxName+1)))
	for _, prefix := range []string{"", "/", "//", "a//b", "a/\xff"} {
		_, err := New(prefix, "ns")
		require.Error(t, err, "%q", prefix)
	}
	_, err := New("/p", "a/b")
	require.ErrorContains(t, err, "namespace")
	s, err := New("p/q/", "ns")
	require.NoError(t, err)
	require.Equal(t, "p/q/v1/ns/", s.Root())
}

func TestNoticeRoundTrip(t *testing.T) {
	s := space(t, "ns").Session(-5)
	request := space(t, "ns").Queue(Semaphore, "a b").Slot(Slot{Lease: -5, Number: 3, Weight: 2})
	token, of, ok := s.ParseNotice(s.Notice(77, request))
	require.True(t, ok)
	require.EqualValues(t, 77, token)
	require.Equal(t, request, of)
	require.True(t, inRange(s.Notice(77, request), s.Notices(77)))
	for _, key := range []string{s.Alive(), s.Notices(77), s.Range + "notice/4D00000000000000/x", s.Range + "notice/000000000000004d"} {
		_, _, ok := s.ParseNotice(key)
		require.False(t, ok, key)
	}
	require.True(t, inRange(s.Alive(), s.Range))
	lease, ok := space(t, "ns").ParseAlive(s.Alive())
	require.True(t, ok)
	require.EqualValues(t, -5, lease)
	for _, key := range []string{s.Range, s.Notice(77, request), s.Alive() + "/alive", space(t, "other").Session(-5).Alive()} {
		_, ok := space(t, "ns").ParseAlive(key)
		require.False(t, ok, key)
	}
	require.False(t, inRange(space(t, "ns").Session(5).Alive(), s.Range))
}

func FuzzParseNotice(f *testing.F) {
	s := Space{root: "/etcdkit/v1/ns/"}.Session(-5)
	f.Add(s.Notice(77, "/etcdkit/v1/ns/x"))
	f.Add(s.Notices(-1))
	f.Add(s.Range + "notice/")
	f.Add(s.Alive())
	f.Fuzz(func(t *testing.T, key string) {
		if token, request, ok := s.ParseNotice(key); ok && s.Notice(token, request) != key {
			t.Fatalf("%q parsed as %d of %q, which is %q", key, token, request, s.Notice(token, request))
		}
	})
}

func FuzzParseSlot(f *testing.F) {
	q := Space{root: "/etcdkit/v1/ns/"}.Queue(Semaphore, "x")
	f.Add(q.Slot(Slot{Lease: 1, Number: 2, Weight: 3, Try: true}))
	f.Add(q.Requests + "heavy/")
	f.Fuzz(func(t *testing.T, key string) {
		if s, ok := q.ParseSlot(key); ok && q.Slot(s) != key {
			t.Fatalf("%q parsed as %+v, which is %q", key, s, q.Slot(s))
		}
	})
}

// Notices of a session and requests to stop have distinct names.
func TestNoticesOfASession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := space(t, "ns").Session(rapid.Int64().Draw(t, "lease"))
		token := rapid.Int64().Draw(t, "token")
		request := space(t, "ns").Queue(Election, "x").Light + "y"
		back, of, ok := s.ParseStop(s.Stop(token, request))
		require.True(t, ok)
		require.Equal(t, token, back)
		require.Equal(t, request, of)
		_, _, ok = s.ParseNotice(s.Stop(token, request))
		require.False(t, ok, "it would be taken for the end")
		_, _, ok = s.ParseStop(s.Notice(token, request))
		require.False(t, ok)
		require.True(t, inRange(s.Stop(token, request), s.Range))
		require.False(t, space(t, "ns").Queued(s.Stop(token, request)))
	})
}

// Every key of a namespace shows its name, whatever characters that has; keys of other prefixes and forms
// show none.
func TestParseNamespace(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"payments", "a b", "é%", ".", ".."} {
		s, err := New("/etcdkit/", name)
		require.NoError(t, err)
		got, space, ok := ParseNamespace("/etcdkit", s.Session(7).Alive())
		require.True(t, ok, name)
		require.Equal(t, name, got)
		require.Equal(t, s, space)
	}
	for _, key := range []string{"", "/etcdkit/v1/", "/etcdkit/v1/x", "/etcdkit/v2/x/y", "/other/v1/x/y", "/etcdkit/v1//y", "/etcdkit/v1/%2f/y", "/etcdkit/v1/%00/y"} {
		_, _, ok := ParseNamespace("/etcdkit", key)
		require.False(t, ok, key)
	}
	_, _, ok := ParseNamespace("", "/v1/x/y")
	require.False(t, ok)
}
