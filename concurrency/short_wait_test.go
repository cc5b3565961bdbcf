package concurrency_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A Wait that is too short for etcd's answers is no outage. A machine that is stopped
// for half a second is one to this caller, and a busy one is stopped often, so each step is tried for a minute.
func TestShortWaitIsNoOutage(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	other, _ := f.Session(nil)
	hold := acquire(t, ctx, sem(t, other, "x", 1))
	sm := sem(t, s, "x", 1)
	full := func(wait time.Duration, times int) {
		t.Helper()
		var err error
		for end := time.Now().Add(soon); time.Now().Before(end); {
			got := 0
			for ; got < times; got++ {
				if _, err = sm.Acquire(ctx, concurrency.Wait(wait)); !errors.Is(err, concurrency.ErrFull) {
					break
				}
			}
			if got == times {
				return
			}
		}
		t.Fatalf("Wait(%v), %d times in a row: %v, want ErrFull", wait, times, err)
	}
	full(300*time.Millisecond, 1)
	c.Delay(30 * time.Millisecond) // a healthy etcd in another region
	full(100*time.Millisecond, 3)
	require.NoError(t, hold.Release(ctx))
}
