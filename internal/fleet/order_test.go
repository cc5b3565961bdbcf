package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who waits longest comes first; who leads, last.
func TestRank(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	want := []Rank{
		{OldestWait: at(1), Name: "z"}, {OldestWait: at(2), Used: 9, Name: "a"}, {OldestWait: at(2), Used: 1, Name: "a"},
		{Used: 2, Name: "b"}, {Used: 1, Name: "a"}, {Used: 1, Name: "b"},
		{Election: true, OldestWait: at(1), Name: "a"}, {Election: true, Name: "a"},
	}
	for i := range want {
		got := slices.Concat(want[i:], want[:i])
		slices.SortFunc(got, Rank.Compare)
		require.Equal(t, want, got)
		require.Zero(t, want[i].Compare(want[i]))
	}
}
