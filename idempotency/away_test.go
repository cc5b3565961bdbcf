package idempotency

import (
	"testing"

	"github.com/stretchr/testify/require"

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
