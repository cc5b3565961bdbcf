package idempotency

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestLossOfPermit: of the causes by which a ctx ends, only the loss of a permit interrupts an attempt (A326, A371 in
// internal/proof/tested-failures.md).
func TestLossOfPermit(t *testing.T) {
	t.Parallel()
	of := func(cause error) error { return &concurrency.LostError{Name: "tenants", Token: 7, Cause: cause} }
	for name, c := range map[string]struct {
		cause error
		lost  bool
	}{
		"evicted":             {of(concurrency.ErrEvicted), true},
		"lost":                {of(concurrency.ErrLost), true},
		"held too long":       {of(concurrency.ErrTooLong), true},
		"its session closed":  {of(concurrency.ErrClosed), true},
		"wrapped":             {fmt.Errorf("work: %w", of(concurrency.ErrEvicted)), true},
		"released":            {of(concurrency.ErrReleased), false},
		"a client that left":  {context.Canceled, false},
		"a deadline":          {context.DeadlineExceeded, false},
		"another attempt":     {&lostError{"the session was lost", errors.New("lease")}, false},
		"it has not ended":    {nil, false},
		"asked to step down":  {&concurrency.StepDownError{Name: "tenants"}, false},
		"its own word for it": {concurrency.ErrLost, false},
	} {
		require.Equal(t, c.lost, lossOfPermit(c.cause) != nil, name)
	}
}
