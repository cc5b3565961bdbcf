package schedlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
)

// The mark of reported losses of a later version says that the later release reports, also where an event shows it.
func TestMarkOfALaterRelease(t *testing.T) {
	t.Parallel()
	var s losses
	s.mark([]byte(record.Reported{Token: 7}.Encode()))
	require.False(t, s.first(7))
	require.True(t, s.first(8))
	require.False(t, s.first(8), "A279: once")
	s.mark([]byte(`{"v":2,"token":7}`))
	require.False(t, s.first(9))
	s.mark(nil) // it was deleted
	require.True(t, s.first(9))
}
