package middleware

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What ends the context of a client is its cause too, and that of contexts derived from it (A382 in
// internal/proof/tested-failures.md): the cause was that of the attempt, nil as long as that lives, so that a handler that
// returns it had succeeded.
func TestCauseOfAClientsEnd(t *testing.T) {
	t.Parallel()
	errLeft, errLost := errors.New("left"), errors.New("lost")
	for name, c := range map[string]struct {
		end   func(own, client context.CancelCauseFunc)
		err   error
		cause error
	}{
		"it lives":             {func(_, _ context.CancelCauseFunc) {}, nil, nil},
		"the client leaves":    {func(_, client context.CancelCauseFunc) { client(errLeft) }, context.Canceled, errLeft},
		"without a cause":      {func(_, client context.CancelCauseFunc) { client(nil) }, context.Canceled, context.Canceled},
		"the attempt ends":     {func(own, _ context.CancelCauseFunc) { own(errLost) }, context.Canceled, errLost},
		"its deadline is over": {nil, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			type key struct{}
			own, endOwn := context.WithCancelCause(t.Context())
			client, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			defer endOwn(nil)
			if c.end == nil {
				timed, cancel := context.WithDeadline(client, time.Now().Add(-time.Second))
				defer cancel()
				client = timed
			}
			of, release := NewClient(own, client)
			defer release()
			ctx := of.Of(context.WithValue(own, key{}, "of the handler"))
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if c.end != nil {
				c.end(endOwn, leave)
			}
			if c.err != nil {
				<-ctx.Done()
				<-child.Done()
			}
			for _, ctx := range []context.Context{ctx, child} {
				require.ErrorIs(t, ctx.Err(), c.err)
				require.ErrorIs(t, context.Cause(ctx), c.cause)
				require.Equal(t, "of the handler", ctx.Value(key{}))
			}
		})
	}
}
