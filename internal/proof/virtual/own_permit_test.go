package virtual

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A634: a call that waits for the permit under which its own context runs is logged, once for each queue, and the error that ends
// the wait says so. It waited in silence. A call that does not wait, that has room beside that permit, or that comes after its
// release is none of these.
func TestCallWaitsForItself(t *testing.T) {
	t.Parallel()
	type ask = func(ctx context.Context, opts ...concurrency.AcquireOption) (*concurrency.Permit, error)
	mutex := func(d *desk) (ask, ask) {
		m, err := concurrency.NewMutex(d.session, "m")
		require.NoError(d.t, err)
		return m.Lock, m.TryLock
	}
	semaphore := func(limit int) func(*desk) (ask, ask) {
		return func(d *desk) (ask, ask) { s := d.semaphore(limit); return s.Acquire, s.TryAcquire }
	}
	weight := concurrency.Weight
	for name, c := range map[string]struct {
		of      func(*desk) (ask, ask)
		outer   int // its weight
		inner   []concurrency.AcquireOption
		try     bool
		release bool
		detach  bool
		bare    bool // the inner call has another context
		granted bool
		said    bool
	}{
		"a mutex":                    {of: mutex, outer: 1, said: true},
		"a mutex, with Wait":         {of: mutex, outer: 1, inner: []concurrency.AcquireOption{concurrency.Wait(time.Second)}, said: true},
		"a mutex, detached":          {of: mutex, outer: 1, detach: true, said: true},
		"a mutex, a try":             {of: mutex, outer: 1, try: true},
		"a mutex, Wait(0)":           {of: mutex, outer: 1, inner: []concurrency.AcquireOption{concurrency.Wait(0)}},
		"a mutex, another context":   {of: mutex, outer: 1, bare: true},
		"a mutex that is released":   {of: mutex, outer: 1, release: true, detach: true, granted: true},
		"a semaphore of 1":           {of: semaphore(1), outer: 1, said: true},
		"a semaphore with room":      {of: semaphore(2), outer: 1, granted: true},
		"a semaphore with less room": {of: semaphore(3), outer: 2, inner: []concurrency.AcquireOption{weight(2)}, said: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				core, logs := observer.New(zap.WarnLevel)
				d.open(concurrency.SessionOptions{Logger: zap.New(core)})
				acquire, try := c.of(d)
				p, err := acquire(t.Context(), weight(c.outer))
				require.NoError(t, err)
				ctx := p.Context()
				if c.bare {
					ctx = t.Context()
				}
				if c.detach {
					ctx = context.WithoutCancel(ctx)
				}
				if c.release {
					require.NoError(t, p.Release(t.Context()))
				}
				if c.try {
					acquire = try
				}
				for range 2 {
					within, cancel := context.WithTimeout(ctx, time.Minute)
					got, err := acquire(within, c.inner...)
					cancel()
					if c.granted {
						require.NoError(t, err)
						require.NoError(t, got.Release(t.Context()))
						continue
					}
					require.Error(t, err)
					if c.inner == nil && !c.try {
						require.ErrorIs(t, err, context.DeadlineExceeded)
					}
					holds := fmt.Sprintf("; its own context holds token %d", p.Token())
					require.Equal(t, c.said, len(err.Error()) > len(holds) && err.Error()[len(err.Error())-len(holds):] == holds, "%v", err)
				}
				require.Equal(t, c.said, logs.FilterMessage("a call waits for a permit of its own context").Len() == 1)
				require.LessOrEqual(t, logs.Len(), 1)
				require.NoError(t, p.Release(t.Context()))
			})
		})
	}
}
