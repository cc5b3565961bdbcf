package virtual

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A492: duplicates that are taken for new ones, as LikelyNew says, and calls whose claim fails take no place of their scope.
func TestDuplicatesTakeNoPlaceOfAScope(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		o := idempotency.Options{MaxPerScope: 20, CacheBytes: -1}
		a, b := on[0].storeOf(o), on[1].storeOf(o)
		held, done := started(t, b, order("held")), started(t, b, order("done"))
		require.NoError(t, done.Commit(t.Context(), nil))
		for range 30 {
			_, _, err := a.Begin(t.Context(), order("held"), "payload", idempotency.LikelyNew(), idempotency.Wait(0))
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			_, _, err = a.Begin(t.Context(), order("held"), "another payload", idempotency.LikelyNew())
			require.ErrorIs(t, err, idempotency.ErrMismatch)
			_, out, err := a.Begin(t.Context(), order("done"), "payload", idempotency.LikelyNew())
			require.NoError(t, err)
			require.NotNil(t, out)
		}
		for n := range 18 {
			started(t, a, order(string(rune('a'+n))))
		}
		_, _, err := a.Begin(t.Context(), order("new"), "payload")
		require.ErrorIs(t, err, idempotency.ErrScopeFull, "each attempt keeps its place")
		require.NoError(t, held.Commit(t.Context(), nil))
	})
}
