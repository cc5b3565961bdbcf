package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only tests with rapid's flags are given one of them.
func TestUsesRapid(t *testing.T) {
	t.Parallel()
	for pkg, want := range map[string]bool{"../../../keyspace": true, "../../virtual": true, "../../../lease": false, "../../../../schedlock": false} {
		uses, err := usesRapid(t.Context(), pkg)
		require.NoError(t, err)
		require.Equal(t, want, uses, pkg)
	}
	_, err := usesRapid(t.Context(), "./nowhere")
	require.Error(t, err)
}
