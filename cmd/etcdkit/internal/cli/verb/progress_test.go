package verb

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
)

// Work that advances may take long; without an answer it ends, as if etcd could not be reached.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Call{Etcd: Connection{Timeout: 5 * time.Second}}
		ctx, alive, cancel := a.Patience(t.Context())
		defer cancel()
		for range 100 {
			time.Sleep(4 * time.Second)
			require.NoError(t, ctx.Err())
			alive()
		}
		time.Sleep(6 * time.Second)
		require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
		code, text := exit.Explain(Because(ctx, ctx.Err()))
		require.Equal(t, exit.Unreachable, code)
		require.Contains(t, text, "no answer for 5s")
	})
}
