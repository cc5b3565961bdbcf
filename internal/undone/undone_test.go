package undone

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

type refuser struct{}

func (refuser) RefusesBefore() {}

// What refuses a request says that nothing was done, unless a handler has begun; without an attempt nothing is said (A267
// in internal/proof/tested-failures.md).
func TestWord(t *testing.T) {
	t.Parallel()
	ctx, w := With(t.Context())
	require.False(t, w.Said())
	Say(context.WithoutCancel(ctx))
	require.True(t, w.Said())

	ctx, w = With(t.Context())
	Begin(ctx)
	Say(ctx)
	require.False(t, w.Said())

	Begin(t.Context())
	Say(t.Context())
	require.True(t, Is(refuser{}))
	require.False(t, Is(nil))
}
