package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Lost is closed when an attempt's context ends before the attempt is settled. Deadline is the
// earlier of MaxExecution's end and the trust in the lease.
func TestLostAndDeadline(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute}, nil)
	at := begin(t, a, key("commit"))
	require.WithinRange(t, at.Deadline(), time.Now(), time.Now().Add(time.Minute), "trust")
	require.NoError(t, at.Commit(ctxT(t), nil))
	require.ErrorIs(t, at.Err(), idempotency.ErrSettled)
	select {
	case <-at.Lost():
		t.Fatal("it was settled")
	default:
	}
	at = begin(t, a, key("late"), idempotency.MaxExecution(50*time.Millisecond))
	require.WithinRange(t, at.Deadline(), time.Now().Add(-soon), time.Now().Add(50*time.Millisecond), "MaxExecution")
	<-at.Lost()
	require.Error(t, at.Context().Err(), "its context has ended before")
	require.ErrorIs(t, at.Err(), idempotency.ErrTooLong)
}
