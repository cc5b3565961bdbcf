package requests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Many requests are counted by what becomes of them (D20): with TakeOver, --failed is final for requests that the next
// duplicate would execute again, and neither the list nor the question said so.
func TestPlanOfMany(t *testing.T) {
	t.Parallel()
	of := func(refuse, alive bool, n int) (all []idempotency.Record) {
		for range n {
			all = append(all, idempotency.Record{State: idempotency.Unknown, Refuse: refuse, Alive: alive})
		}
		return all
	}
	found := append(append(append(of(false, false, 2), of(true, false, 3)...), of(true, true, 1)...), of(false, true, 1)...)
	failed, again := account{what: idempotency.HasFailed("x")}, account{what: idempotency.NotDone(), again: true}
	const refuse, takeOver, lives = "refuse", "take-over", "none: the process lives"
	const replayed, final = "duplicates get the failure; they would be refused", "duplicates get the failure for good; the next one would do the work again"
	const runs, asBefore = "the next duplicate does the work; it would be refused", "none: the next duplicate does the work, as it would"
	for _, tt := range []struct {
		what  account
		force bool
		want  []alike
	}{
		{failed, false, []alike{{"unknown", refuse, false, 3, replayed}, {"unknown", refuse, true, 1, lives}, {"unknown", takeOver, false, 2, final}, {"unknown", takeOver, true, 1, lives}}},
		{again, false, []alike{{"unknown", refuse, true, 1, lives}, {"unknown", refuse, false, 3, runs}, {"unknown", takeOver, false, 2, asBefore}, {"unknown", takeOver, true, 1, lives}}},
		{again, true, []alike{{"unknown", refuse, false, 3, runs}, {"unknown", refuse, true, 1, runs}, {"unknown", takeOver, false, 2, asBefore}, {"unknown", takeOver, true, 1, asBefore}}},
	} {
		require.ElementsMatch(t, tt.want, planOf(found, tt.what, tt.force))
	}
	require.Empty(t, planOf(nil, failed, false))
}

// V33: of a record that does not say what replays it, the question says that nothing has compared the result.
func TestResultThatNothingCompares(t *testing.T) {
	t.Parallel()
	for via, says := range map[string]bool{"": true, "do": false} {
		f := account{result: always([]byte(`{}`)), text: "was done"}
		require.NoError(t, f.fits(new(examined), idempotency.Record{Via: via}))
		require.Equal(t, says, strings.Contains(f.text, "nothing compares"), via)
	}
}
