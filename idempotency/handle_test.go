package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// An attempt's context ends with the cause: ErrSettled if it was settled. Deadline is the earlier of
// MaxExecution's end and the trust in the lease.
func TestCauseAndDeadline(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute}, nil)
	at := begin(t, a, key("commit"))
	require.WithinRange(t, at.Deadline(), time.Now(), time.Now().Add(time.Minute), "trust")
	require.NoError(t, at.Commit(ctxT(t), nil))
	require.ErrorIs(t, at.Err(), idempotency.ErrSettled)
	require.ErrorIs(t, context.Cause(at.Context()), idempotency.ErrSettled)
	at = begin(t, a, key("late"), idempotency.MaxExecution(50*time.Millisecond))
	require.WithinRange(t, at.Deadline(), time.Now().Add(-soon), time.Now().Add(50*time.Millisecond), "MaxExecution")
	<-at.Context().Done()
	require.ErrorIs(t, context.Cause(at.Context()), idempotency.ErrTooLong)
	require.ErrorIs(t, at.Err(), idempotency.ErrTooLong)
}
