package concurrency_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

func TestKeepAndHandoverAreChecked(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	for _, opts := range []concurrency.SemaphoreOptions{{Keep: -1}, {Keep: time.Hour + 1}, {Handover: -1}, {Handover: time.Minute + 1}} {
		_, err := concurrency.NewSemaphore(s, "x", 1, &opts)
		require.ErrorIs(t, err, concurrency.ErrInvalid)
	}
}

// The callers of two processes that keep permits, or pass them on, never hold more than the limit, and
// each key has one holder at a time.
func TestKeptPermitsStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]concurrency.SemaphoreOptions{
		"Keep":     {Keep: 50 * time.Millisecond},
		"Handover": {Handover: 20 * time.Millisecond},
		"both":     {Keep: time.Second, Handover: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stayWithinTheLimit(t, opts)
		})
	}
}

func stayWithinTheLimit(t *testing.T, opts concurrency.SemaphoreOptions) {
	const limit, callers, processes, enough = 3, 4, 2, 500 // grants, if the time is enough for them
	f := shared(t)
	ctx, cancel := context.WithTimeout(ctxT(t), 1500*time.Millisecond)
	defer cancel()
	var holding, granted atomic.Int64
	var holders sync.Map // by token, as the hooks report them
	var all sync.WaitGroup
	for process := range processes {
		s, _ := f.Session(nil)
		sm, err := concurrency.NewSemaphore(s, "x", limit, &opts)
		require.NoError(t, err)
		for caller := range callers {
			name := strconv.Itoa(process) + "/" + strconv.Itoa(caller)
			all.Go(func() {
				for ctx.Err() == nil && granted.Load() < enough {
					p, err := sm.Acquire(ctx)
					if err != nil {
						return
					}
					if n := holding.Add(1); n > limit {
						t.Errorf("%d permits are held", n)
					}
					if other, taken := holders.LoadOrStore(concurrency.KeyOf(p), name); taken {
						t.Errorf("%s and %s hold the same key", name, other)
					}
					granted.Add(1)
					if granted.Load()%7 == 0 {
						time.Sleep(time.Millisecond)
					}
					holders.Delete(concurrency.KeyOf(p))
					holding.Add(-1)
					if err := p.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d grants", granted.Load())
	f.NoKeys("/light/")
}
