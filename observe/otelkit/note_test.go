package otelkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

// A note is read back as the span that it names, and any other text as none.
func TestNote(t *testing.T) {
	t.Parallel()
	require.Empty(t, Note(context.Background()))
	const text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	s, ok := spanOf(text + " and more")
	require.True(t, ok)
	require.Equal(t, text, Note(trace.ContextWithRemoteSpanContext(context.Background(), s)))
	for _, other := range []string{
		"", "order 17", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-zz",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-012",
	} {
		_, ok := spanOf(other)
		require.False(t, ok, "%q", other)
	}
}
