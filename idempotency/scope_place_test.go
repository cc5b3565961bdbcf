package idempotency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A492: a call takes one place of a count, however often its claim is refused; it gives back none of a later count.
func TestOnePlaceForEachCall(t *testing.T) {
	t.Parallel()
	s := scopes{most: 3, of: map[string]*tally{}}
	tl := s.tally("scope")
	var one, two seat
	require.False(t, s.counted(tl, 1, now(), &one))
	tl.took = 10 * time.Second // so that it is used for longer than the test takes
	for range 5 {
		known, full := s.take(tl, &one)
		require.True(t, known)
		require.False(t, full)
	}
	require.EqualValues(t, 2, tl.n)
	_, full := s.take(tl, &two)
	require.False(t, full)
	_, full = s.take(tl, new(seat))
	require.True(t, full)
	s.leave(seat{})
	s.leave(two)
	require.EqualValues(t, 2, tl.n)

	require.False(t, s.counted(tl, 2, now(), &two))
	s.leave(one) // of the count before
	require.EqualValues(t, 3, tl.n)
}
