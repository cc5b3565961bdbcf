package cli

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Work that advances may take long; without an answer it ends, as if etcd could not be reached.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &app{etcd: connection{timeout: 5 * time.Second}}
		ctx, alive, cancel := a.patience(t.Context())
		defer cancel()
		for range 100 {
			time.Sleep(4 * time.Second)
			require.NoError(t, ctx.Err())
			alive()
		}
		time.Sleep(6 * time.Second)
		require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
		code, text := explain(because(ctx, ctx.Err()))
		require.Equal(t, exitUnreachable, code)
		require.Contains(t, text, "no answer for 5s")
	})
}

// Progress is one line that is replaced, at most ten times a second, and erased at the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{out: &out}
		p.end()
		require.Empty(t, out.String())
		for n := range 3 {
			p.set("%d read", n)
			time.Sleep(60 * time.Millisecond)
		}
		p.end()
		p.end()
		require.Equal(t, "\r\x1b[K0 read\r\x1b[K2 read\r\x1b[K", out.String())
		(&app{}).progress().set("nothing without a terminal")
	})
}
