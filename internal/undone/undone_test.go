package undone

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

type refuser struct{}

func (refuser) RefusesBefore() {}

// A middleware that refuses a request reports that nothing was done, unless a handler has begun; without an attempt
// nothing is reported (A267 in internal/proof/tested-failures.md).
func TestCall(t *testing.T) {
	t.Parallel()
	ctx, c := With(t.Context(), refuser{})
	require.False(t, c.Undone())
	Report(context.WithoutCancel(ctx))
	require.True(t, c.Undone())
	require.False(t, c.Between())

	ctx, c = With(t.Context(), refuser{})
	Begin(ctx)
	Report(ctx)
	require.False(t, c.Undone())

	ctx, c = With(t.Context(), nil)
	require.False(t, c.Between())
	Report(ctx)
	require.False(t, c.Undone())
	require.True(t, c.Between())

	Begin(t.Context())
	Report(t.Context())
	require.True(t, Is(refuser{}))
	require.False(t, Is(nil))
}
