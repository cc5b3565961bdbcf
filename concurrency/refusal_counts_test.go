package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/share"
)

// A601: a call with MaxWaiters whose Wait passes while its request is being written is not refused because of a queue in which
// it has found room.
func TestWaitEndsAtAnEmptyQueue(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*concurrency.Session) *concurrency.Semaphore{
		"semaphore": func(s *concurrency.Session) *concurrency.Semaphore { return sem(t, s, "x", 5) },
		"key": func(s *concurrency.Session) *concurrency.Semaphore {
			l, err := concurrency.NewKeyedLimiter(s, "l", 5, nil)
			require.NoError(t, err)
			return l.Key("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, c := f.Session(idle())
			sm := of(s)
			require.NoError(t, acquire(t, ctx, sm).Release(ctx), "it knows the limit")
			held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Times: -1, Do: embedtest.HoldRequest})
			err := refused(func() (*concurrency.Permit, error) {
				return sm.Acquire(ctx, concurrency.MaxWaiters(3), concurrency.Wait(100*time.Millisecond))
			})
			require.Positive(t, held.Hits())
			held.Release()
			full, ok := errors.AsType[*concurrency.FullError](err)
			require.True(t, ok, "%v", err)
			require.ErrorIs(t, err, share.ErrUnseen, "a middleware answers 503")
			require.ErrorContains(t, err, "limit 5; etcd has not shown the queue in time; Wait(100ms) has passed")
			require.Equal(t, []int{0, 0}, []int{full.Used, full.Waiting})
			require.Zero(t, full.RetryAfter)
		})
	}
}

// A601: whatever ends a wait, and when, no refusal has a number below 0, or counts with which the call would have been admitted.
func TestRefusalsOfAStorm(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	end, stop := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer stop()
	var all sync.WaitGroup
	var sessions []*concurrency.Session
	for p := range 3 {
		s, c := f.Session(&concurrency.SessionOptions{TTL: 5 * time.Second})
		sessions = append(sessions, s)
		c.Delay(time.Duration(p) * 4 * time.Millisecond)
		for name, call := range stormKinds(t, s) {
			for range 5 {
				all.Go(func() {
					for end.Err() == nil {
						stormCall(t, ctx, name, call)
					}
				})
			}
		}
	}
	for range 2 {
		time.Sleep(500 * time.Millisecond)                                   // the storm goes on
		if lease := sessions[rand.IntN(len(sessions))].Lease(); lease != 0 { // or it has just lost one
			_ = f.ExpireLease(ctx, lease) // which may end by itself meanwhile
		}
	}
	all.Wait()
}

// acquires is a call for a permit.
type acquires func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error)

// stormKinds returns the calls of one session, by their kind.
func stormKinds(t *testing.T, s *concurrency.Session) map[string]acquires {
	with := func(name string, o concurrency.SemaphoreOptions) acquires {
		sm, err := concurrency.NewSemaphore(s, name, 3, &o)
		require.NoError(t, err)
		return sm.Acquire
	}
	keys, err := concurrency.NewKeyedLimiter(s, "keys", 3, nil)
	require.NoError(t, err)
	total, err := concurrency.NewKeyedLimiter(s, "total", 3, &concurrency.KeyedLimiterOptions{Total: 5, MaxTotalWaiters: 8})
	require.NoError(t, err)
	anyKey := func(l *concurrency.KeyedLimiter) acquires {
		return func(ctx context.Context, o ...concurrency.AcquireOption) (*concurrency.Permit, error) {
			return l.Key(string(rune('a'+rand.IntN(3)))).Acquire(ctx, o...)
		}
	}
	return map[string]acquires{
		"semaphore": with("plain", concurrency.SemaphoreOptions{}),
		"keep":      with("keep", concurrency.SemaphoreOptions{Keep: time.Second}),
		"handover":  with("handover", concurrency.SemaphoreOptions{Handover: 20 * time.Millisecond}),
		"mutex":     mutex(t, s, "mutex").Lock,
		"key":       anyKey(keys),
		"total":     anyKey(total),
	}
}

// stormCall makes one call that waits for a moment at most, and checks its refusal.
func stormCall(t *testing.T, ctx context.Context, name string, call acquires) {
	wait := concurrency.Wait(time.Duration(1+rand.IntN(60)) * time.Millisecond)
	how, opts := "plain", []concurrency.AcquireOption{wait}
	switch rand.IntN(5) {
	case 0:
		how, opts = "max waiters", append(opts, concurrency.MaxWaiters(1+rand.IntN(4)))
	case 1:
		how, opts = "try", []concurrency.AcquireOption{concurrency.Wait(0)}
	case 2:
		how, opts = "id", append(opts, concurrency.ID(fmt.Sprint(rand.IntN(3))))
	case 3:
		if name != "mutex" {
			how, opts = "weight", append(opts, concurrency.Weight(2))
		}
	}
	p, err := call(ctx, opts...)
	if err == nil {
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // it is held for so long
		_ = p.Release(ctx)
		return
	}
	full, ok := errors.AsType[*concurrency.FullError](err)
	switch {
	case !ok:
	case full.Used < 0 || full.Waiting < 0 || full.RetryAfter < 0:
		t.Errorf("%s, %s: %v, retry after %v", name, how, err, full.RetryAfter)
	case errors.Is(err, share.ErrUnseen) || full.Waiting > 0:
	case full.Used+1 <= full.Limit && how != "weight", full.Used+2 <= full.Limit:
		t.Errorf("%s, %s: the call fits: %v", name, how, err)
	}
}
