package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each action needs a reason, on one target and on many.
func TestReasons(t *testing.T) {
	t.Parallel()
	require.Len(t, needs, len(done))
	for verb := range done {
		o := order{Action: Action{Verb: verb, Name: "x"}, confirm: "x", value: map[Verb]string{SetLimit: "1", Resolve: "not-done"}[verb]}
		require.Equal(t, "The reason is missing.", o.mistake(), verb)
		o.reason = "load"
		require.Empty(t, o.mistake(), verb)
	}
	for _, verb := range []Verb{Evict, Resolve, Delete} {
		b := bulk{verb: verb, name: "x", value: "not-done"}
		require.Equal(t, "The reason is missing.", b.mistake("x"), verb)
		b.reason = "load"
		require.Empty(t, b.mistake("x"), verb)
	}
}
