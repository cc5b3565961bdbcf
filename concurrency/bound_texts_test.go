package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// An error of a wait that has ended names the option that has bounded it, with its value; that of a call which never
// waits, and of one whose ctx has ended, names none.
func TestErrorsNameTheBound(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	ctx := ctxT(t)
	full, paused := sem(t, s, "images", 1), sem(t, s, "paused", 0)
	acquire(t, ctx, full)
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 1, MaxTotalWaiters: 1})
	require.NoError(t, err)
	acquire(t, ctx, lim.Key("a"))
	waitsInTotal(t, ctx, lim, 1, ask(t, ctx, lim.Key("b")))

	for want, call := range map[string]func() (*concurrency.Permit, error){
		`acquire "images": no permit is free: 1 of 1 in use, 0 waiting; MaxWaiters(0) admits no more to the queue`: func() (*concurrency.Permit, error) {
			return full.Acquire(ctx, concurrency.MaxWaiters(0))
		},
		`acquire "images": no permit is free: 1 of 1 in use, 0 waiting`: func() (*concurrency.Permit, error) {
			return full.TryAcquire(ctx)
		},
		`acquire "api/c": no permit is free: 1 of 1 in use, 1 waiting; KeyedLimiterOptions.MaxTotalWaiters of 1 admits no more to the queue`: func() (*concurrency.Permit, error) {
			return lim.Key("c").Acquire(ctx)
		},
	} {
		_, err := call()
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, concurrency.ErrFull)
		require.ErrorAs(t, err, new(*concurrency.FullError))
	}
	for sm, want := range map[*concurrency.Semaphore]string{
		full:   `acquire "images": no permit is free: 1 of 1 in use, 0 waiting; Wait(%v) has passed`,
		paused: `acquire "paused": no permit is free: limit 0 (SetLimit resumes), 0 in use, 0 waiting; Wait(%v) has passed`,
	} {
		d := 50 * time.Millisecond
		_, err := sm.Acquire(ctx, concurrency.Wait(d))
		for errors.Is(err, concurrency.ErrUnavailable) || strings.Contains(err.Error(), "has not shown the queue") { // on a busy machine
			require.ErrorContains(t, err, fmt.Sprintf("; Wait(%v) has passed", d))
			d *= 2
			require.Eventually(t, func() bool { // or it counts the request that was given up
				st, err := sm.Status(ctx)
				return err == nil && len(st.Waiters) == 0
			}, testkit.Soon, 5*time.Millisecond)
			_, err = sm.Acquire(ctx, concurrency.Wait(d))
		}
		require.EqualError(t, err, fmt.Sprintf(want, d))
	}
	ended, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = full.Acquire(ended, concurrency.Wait(time.Hour))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "Wait(")
}

// The same without etcd.
func TestOutageNamesTheBound(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	s, _ := fixture{testkit.On(t, c)}.Session(nil)
	sm := sem(t, s, "images", 1)
	acquire(t, ctxT(t), sm)
	require.NoError(t, c.Crash(0))
	_, err := sm.Acquire(ctxT(t), concurrency.Wait(100*time.Millisecond))
	require.ErrorIs(t, err, concurrency.ErrUnavailable)
	require.ErrorContains(t, err, "; Wait(100ms) has passed")
}
