package schedlock

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A claim is too late if it failed for that, also where the ctx of the call has not ended yet; of
// another ctx than this package's own, the end is an error of the call.
func TestTooLate(t *testing.T) {
	t.Parallel()
	ending := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	lives, late, closed, callers := t.Context(), ending(endedBy{errLate}), ending(endedBy{ErrClosed}), ending(errLate)
	other := errors.New("etcd's")
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"no error":                             {late, nil, false},
		"late":                                 {late, errLate, true},
		"late, while etcd had an error":        {late, other, true},
		"late, the call's ctx ends in a bit":   {lives, fmt.Errorf("%w: %w", errors.Join(errLate, other), ErrUnavailable), true},
		"another error":                        {lives, other, false},
		"closed":                               {closed, ErrClosed, false},
		"the caller's ctx, whatever its cause": {callers, context.Canceled, false},
	} {
		require.Equal(t, tt.want, tooLate(tt.ctx, tt.err), name)
	}
}
