package idempotency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/internal/silence"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// A process remembers its lost attempts until they are settled, and no longer.
func TestAttemptsLeft(t *testing.T) {
	t.Parallel()
	attempt := func(ref string) *Attempt { return &Attempt{claim: claim{entry: keyspace.Entry{Ref: ref}}} }
	w, first, second, other := newAway(nil), attempt("a"), attempt("a"), attempt("b")
	require.False(t, w.knows("a"))
	w.leave(first)
	w.leave(other)
	require.True(t, w.knows("a"))
	w.leave(second) // after an outage, and lost in the next one
	w.settle(first)
	require.True(t, w.knows("a"))
	w.settle(second)
	require.False(t, w.knows("a"))
	require.True(t, w.knows("b"))
	w.settle(other)
	require.Empty(t, w.left)

	first.settling.over = ErrSettled
	w.leave(first)
	require.False(t, w.knows("a"), "it was settled at the same moment")
	w.settle(first)
}

// A710: the waits of calls add up to a silence of etcd, without the times in which none waited. It begins anew when etcd has
// answered, and after a time without calls.
func TestSilentTime(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	never := at(-1000)
	var s silent
	for _, c := range []struct {
		name             string
		from, to         float64
		last             time.Time
		since, until, is float64
	}{
		{"a first part", 0, 0.5, never, 0, 0.5, 0.5},
		{"the next one", 0.5, 1, never, 0, 1, 1},
		{"of another call at the same time", 0.7, 1.2, never, 0, 1.2, 1.2},
		{"within a part that counts already", 0.8, 1, never, 0, 1.2, 1.2},
		{"after a time without calls", 3, 3.5, never, 0, 3.5, 1.7},
		{"after a long one", 9, 9.5, never, 9, 9.5, 0.5},
		{"etcd has answered", 9.5, 10, at(9.2), 9.5, 10, 0.5},
		{"before that", 10, 10.5, at(9.2), 9.5, 10.5, 1},
	} {
		s = s.and(silence.Part{From: at(c.from), To: at(c.to)}, c.last, 5*time.Second)
		require.Equal(t, silent{at(c.since), at(c.until), time.Duration(c.is * float64(time.Second))}, s, c.name)
	}
}
