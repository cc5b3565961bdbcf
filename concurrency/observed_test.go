package concurrency_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// seen is a session whose hooks record, and another session.
type seen struct {
	fixture
	*testkit.Recorder
	session, other *concurrency.Session
	client         *embedtest.Client
}

func (s seen) semaphore(limit int) *concurrency.Semaphore { return sem(s.T, s.session, "x", limit) }

// taken has the other session hold the one permit of "x".
func (s seen) taken(opts ...concurrency.AcquireOption) *concurrency.Permit {
	return acquire(s.T, ctxT(s.T), sem(s.T, s.other, "x", 1), opts...)
}

// waiting starts a call that waits for "x" and returns when it does.
func (s seen) waiting(ctx context.Context, opts ...concurrency.AcquireOption) <-chan answer {
	return ask(s.T, ctx, s.semaphore(1), opts...)
}

// H1 to H3: the hooks see each outcome of each call once, and each begun call ends.
func TestHooksSeeEachOutcome(t *testing.T) {
	t.Parallel()
	expired := func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	for name, tt := range map[string]struct {
		opts *concurrency.SessionOptions
		do   func(t *testing.T, s seen, ctx context.Context)
		want []string
	}{
		"granted and released": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.NoError(t, acquire(t, ctx, s.semaphore(1)).Release(ctx))
			},
			want: []string{"acquire: granted", "release: released", "hold: released"},
		},
		"a function": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.NoError(t, s.semaphore(1).Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
			},
			want: []string{"acquire: granted", "release: released", "hold: released"},
		},
		"a function that panics": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.Panics(t, func() {
					_ = s.semaphore(1).Do(ctx, func(context.Context, *concurrency.Permit) error { panic("of a test") })
				})
			},
			want: []string{"acquire: granted", "release: released", "hold: released"},
		},
		"refused: full": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				_, err := s.semaphore(1).TryAcquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrFull)
			},
			want: []string{"acquire: refused (full)"},
		},
		"refused: paused": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.NoError(t, sem(t, s.other, "x", 1).SetLimit(ctx, 0, concurrency.CreateLimit()))
				_, err := s.semaphore(1).TryAcquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrFull)
			},
			want: []string{"acquire: refused (paused)"},
		},
		"refused: paused key": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				lim, err := concurrency.NewKeyedLimiter(s.session, "x", 1, nil)
				require.NoError(t, err)
				require.NoError(t, lim.Key("k").SetLimit(ctx, 0, concurrency.CreateLimit()))
				_, err = lim.Key("k").Acquire(ctx, concurrency.Wait(0))
				require.ErrorIs(t, err, concurrency.ErrFull)
			},
			want: []string{"acquire: refused (paused)"},
		},
		"refused: too many wait": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				ask(t, ctx, sem(t, s.other, "x", 1))
				_, err := s.semaphore(1).Acquire(ctx, concurrency.MaxWaiters(1), concurrency.Wait(time.Minute))
				require.ErrorIs(t, err, concurrency.ErrFull)
			},
			want: []string{"acquire: refused (full)"},
		},
		"gave up: Wait": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				_, err := s.semaphore(1).Acquire(ctx, concurrency.Wait(100*time.Millisecond))
				require.ErrorIs(t, err, concurrency.ErrFull)
			},
			want: []string{"acquire: gave_up (wait)"},
		},
		"gave up: canceled": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				ctx, cancel := context.WithCancel(ctx)
				ch := s.waiting(ctx)
				cancel()
				require.ErrorIs(t, got(t, ch, "the end").err, context.Canceled)
			},
			want: []string{"acquire: gave_up (canceled)"},
		},
		"gave up: deadline": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				_, err := s.semaphore(1).Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			},
			want: []string{"acquire: gave_up (deadline)"},
		},
		"gave up: unavailable": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.NoError(t, acquire(t, ctx, sem(t, s.other, "x", 1)).Release(ctx))
				s.client.Cut()
				_, err := s.semaphore(1).Acquire(ctx, concurrency.Wait(200*time.Millisecond))
				require.ErrorIs(t, err, concurrency.ErrUnavailable)
			},
			want: []string{"acquire: gave_up (unavailable)"},
		},
		"refused: held": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken(concurrency.ID("i"))
				_, err := s.semaphore(1).Acquire(ctx, concurrency.ID("i"))
				require.ErrorIs(t, err, concurrency.ErrHeld)
			},
			want: []string{"acquire: refused (held)"},
		},
		"refused: mismatch": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				_, err := s.semaphore(2).Acquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrLimitMismatch)
			},
			want: []string{"acquire: refused (mismatch)"},
		},
		"refused: too many": {
			opts: &concurrency.SessionOptions{TTL: 300 * time.Second, MaxPermits: 1},
			do: func(t *testing.T, s seen, ctx context.Context) {
				acquire(t, ctx, sem(t, s.session, "y", 1))
				_, err := s.semaphore(1).Acquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrTooMany)
			},
			want: []string{"acquire: refused (too_many)"},
		},
		"error: invalid": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				_, err := s.semaphore(1).Acquire(ctx, concurrency.Weight(2))
				require.ErrorIs(t, err, concurrency.ErrInvalid)
				_, err = mutex(t, s.session, "x").Lock(ctx, concurrency.Weight(2))
				require.ErrorIs(t, err, concurrency.ErrInvalid)
			},
			want: []string{"acquire: error (invalid)", "acquire: error (invalid)"},
		},
		"error: closed": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				sm := s.semaphore(1)
				require.NoError(t, s.session.Close(ctx))
				_, err := sm.Acquire(ctx)
				require.ErrorIs(t, err, concurrency.ErrClosed)
			},
			want: []string{"acquire: error (closed)"},
		},
		"evicted while it waits": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				ch := s.waiting(ctx, concurrency.ID("i"))
				require.NoError(t, sem(t, s.other, "x", 1).Evict(ctx, "i", ""))
				require.ErrorIs(t, got(t, ch, "the end").err, concurrency.ErrEvicted)
			},
			want: []string{"acquire: lost (evicted)"},
		},
		"released by ID while it waits": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				s.taken()
				ch := s.waiting(ctx, concurrency.ID("i"))
				require.NoError(t, sem(t, s.other, "x", 1).ReleaseID(ctx, "i"))
				require.ErrorIs(t, got(t, ch, "the end").err, concurrency.ErrReleased)
			},
			want: []string{"acquire: lost (by_id)"},
		},
		"lost: evicted, and released too late": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				p := acquire(t, ctx, s.semaphore(1), concurrency.ID("i"))
				require.NoError(t, sem(t, s.other, "x", 1).Evict(ctx, "i", ""))
				closed(t, p.Context().Done(), "the eviction")
				require.ErrorIs(t, p.Release(ctx), concurrency.ErrEvicted)
			},
			want: []string{"acquire: granted", "PermitLost", "hold: lost (evicted)", "release: lost (evicted)", "Overrun"},
		},
		"released by ID": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				p := acquire(t, ctx, s.semaphore(1), concurrency.ID("i"))
				require.NoError(t, sem(t, s.other, "x", 1).ReleaseID(ctx, "i"))
				closed(t, p.Context().Done(), "the release by ID")
				require.NoError(t, p.Release(ctx))
			},
			want: []string{"acquire: granted", "hold: released (by_id)", "release: released"},
		},
		"lost: too long": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				p := acquire(t, ctx, s.semaphore(1), concurrency.MaxHold(50*time.Millisecond))
				closed(t, p.Context().Done(), "MaxHold")
			},
			want: []string{"acquire: granted", "PermitLost", "hold: lost (too_long)"},
		},
		"lost: the key was deleted": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				p := acquire(t, ctx, s.semaphore(1))
				for _, key := range s.Keys("/queue/") {
					_, err := s.Client().Delete(ctx, key)
					require.NoError(t, err)
				}
				require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost)
			},
			want: []string{"acquire: granted", "PermitLost", "hold: lost (key_gone)", "release: lost (key_gone)"},
		},
		"lost: the session": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				p := acquire(t, ctx, s.semaphore(1))
				require.NoError(t, s.RevokeLease(ctx, s.session.Lease()))
				closed(t, p.Context().Done(), "the lease")
				s.Await(t, "", "acquire: granted", "PermitLost", "hold: lost (session)", "SessionLost", "SessionRecovered")
			},
			want: []string{"acquire: granted", "PermitLost", "hold: lost (session)"},
		},
		"lost: closed": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				acquire(t, ctx, s.semaphore(1))
				require.ErrorIs(t, s.session.Close(expired()), context.Canceled)
			},
			want: []string{"acquire: granted", "PermitLost", "hold: lost (closed)"},
		},
		"unconfirmed": {
			opts: brisk(),
			do: func(t *testing.T, s seen, ctx context.Context) {
				p := acquire(t, ctx, s.semaphore(1))
				s.client.Cut()
				require.ErrorIs(t, p.Release(expired()), concurrency.ErrUnconfirmed)
			},
			want: []string{"acquire: granted", "release: unconfirmed", "hold: unconfirmed"},
		},
		"a limit changes": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				sm := s.semaphore(1)
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
				require.NoError(t, sem(t, s.other, "x", 1).SetLimit(ctx, 3))
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
				s.Await(t, "", append(twice, "LimitChanged")...)
				for _, said := range s.Said("") {
					if e, ok := said.Event.(observe.LimitChanged); ok {
						require.Equal(t, observe.LimitChanged{Namespace: "test", Kind: observe.Semaphore, Name: "x", From: 1, To: 3}, e)
					}
				}
			},
			want: twice,
		},
		"kept": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				sm, err := concurrency.NewSemaphore(s.session, "x", 1, &concurrency.SemaphoreOptions{Keep: time.Minute})
				require.NoError(t, err)
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
			},
			want: twice,
		},
		"handed over": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				sm, err := concurrency.NewSemaphore(s.session, "x", 1, &concurrency.SemaphoreOptions{Handover: time.Minute})
				require.NoError(t, err)
				p := acquire(t, ctx, sm)
				next := ask2(ctx, sm)
				require.NoError(t, p.Release(ctx))
				require.NoError(t, granted(t, next, "the next call").Release(ctx))
			},
			want: twice,
		},
		"a mutex": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.NoError(t, lock(t, s.session, "x").Release(ctx))
			},
			want: []string{"acquire: granted", "release: released", "hold: released"},
		},
		"the key of a limiter": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				lim, err := concurrency.NewKeyedLimiter(s.session, "x", 1, &concurrency.KeyedLimiterOptions{Total: 2})
				require.NoError(t, err)
				require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
				for _, said := range s.Said("x") {
					require.Equal(t, []string{"limiter", "a", "test"}, []string{string(said.Call.Kind), said.Call.Key, said.Call.Namespace})
				}
			},
			want: []string{"acquire: granted", "release: released", "hold: released"},
		},
		"a term": {
			do: func(t *testing.T, s seen, ctx context.Context) {
				require.NoError(t, election(t, s.session, "x").Lead(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
			},
			want: []string{"campaign: granted", "release: released", "lead: released"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seen{fixture: shared(t), Recorder: &testkit.Recorder{}}
			opts := tt.opts
			if opts == nil {
				opts = idle()
			}
			opts.Hooks = s.Hooks()
			s.session, s.client = s.Session(opts)
			s.other, _ = s.Session(nil)
			tt.do(t, s, ctxT(t))
			s.Await(t, "x", tt.want...)
			_ = s.session.Close(expired())
			s.Settled(t)
		})
	}
}

var twice = []string{"acquire: granted", "release: released", "hold: released", "acquire: granted", "release: released", "hold: released"}

// H1, H2: work has the values that the hooks have given its hold, not those of its acquire, and the
// cancellation of the caller's context, also if a hook returns another one.
func TestContextsOfHooks(t *testing.T) {
	t.Parallel()
	f := shared(t)
	type key struct{}
	opts := idle()
	opts.Hooks = []observe.Hooks{
		{Start: func(_ context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			dropped, cancel := context.WithCancel(context.Background())
			cancel()
			return context.WithValue(dropped, key{}, string(c.Op)), nil
		}},
		{}, // has neither
	}
	s, _ := f.Session(opts)
	ctx, cancel := context.WithCancel(ctxT(t))
	p := acquire(t, ctx, sem(t, s, "x", 1))
	require.Equal(t, "hold", p.Context().Value(key{}))
	does, finish := context.WithCancel(ctxT(t))
	require.ErrorIs(t, sem(t, s, "y", 1).Do(does, func(ctx context.Context, _ *concurrency.Permit) error {
		require.Equal(t, "hold", ctx.Value(key{}))
		finish()
		<-ctx.Done()
		return ctx.Err()
	}), context.Canceled)
	require.NoError(t, election(t, s, "e").Lead(ctxT(t), func(ctx context.Context, _ *concurrency.Permit) error {
		require.Equal(t, "lead", ctx.Value(key{}))
		return ctx.Err()
	}))
	require.NoError(t, p.Context().Err())
	other, _ := f.Session(nil)
	ch := ask(t, ctx, sem(t, s, "x", 1))
	cancel()
	require.ErrorIs(t, got(t, ch, "the end").err, context.Canceled)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, acquire(t, ctxT(t), sem(t, other, "x", 1)).Release(ctxT(t)))
	require.ErrorIs(t, p.Context().Err(), context.Canceled)
}

// A hook that panics, in any of its functions, changes no call. Each panic is counted and logged.
func TestPanicsOfHooks(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	core, lines := observer.New(zapcore.WarnLevel)
	rec := &testkit.Recorder{}
	var ends atomic.Int64
	opts := idle()
	opts.Logger = zap.New(core)
	opts.Hooks = append([]observe.Hooks{
		{
			Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) { panic("at the start") },
			Event: func(_ context.Context, e observe.Event) {
				if _, ok := e.(observe.PermitLost); ok {
					panic("at an event")
				}
			},
		},
		{Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) {
			return nil, func(observe.Outcome) { ends.Add(1); panic(errors.New("at the end")) }
		}},
	}, rec.Hooks()...)
	s, _ := f.Session(opts)
	p := acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
	require.NoError(t, sem(t, s, "x", 1).Evict(ctx, "i", ""))
	closed(t, p.Context().Done(), "the eviction")
	rec.Await(t, "x", "acquire: granted", "PermitLost", "hold: lost (evicted)")
	require.NoError(t, s.Close(ctx))
	rec.Settled(t)
	require.EqualValues(t, 2, ends.Load())
	require.EqualValues(t, 2+2+1, s.HookPanics())
	require.Equal(t, 3, lines.FilterMessageSnippet("a hook has panicked").Len(), "once a minute for each hook")
	events := 0
	for _, said := range rec.Said("") {
		if said.Text == "HookPanicked" {
			events++
		}
	}
	require.Equal(t, 5, events, "events for the other hooks")
}

// A report of waiting says why the call waits, and comes again.
func TestHooksSeeWhyACallWaits(t *testing.T) {
	t.Parallel()
	f := shared(t)
	rec := &testkit.Recorder{}
	opts := idle()
	opts.Hooks, opts.ReportEvery = rec.Hooks(), 20*time.Millisecond
	s, _ := f.Session(opts)
	other, _ := f.Session(nil)
	lim, err := concurrency.NewKeyedLimiter(s, "x", 3, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	there, err := concurrency.NewKeyedLimiter(other, "x", 3, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	holder := acquire(t, ctxT(t), there.Key("b"), concurrency.Note("why"))
	ctx, cancel := context.WithCancel(ctxT(t))
	ch := ask2(ctx, lim.Key("a"))
	require.Eventually(t, func() bool { return len(rec.Said("x")) > 2 }, soon, tick)
	cancel()
	require.Error(t, got(t, ch, "the end").err)
	w := rec.Said("x")[0].Event.(observe.Waiting)
	require.Equal(t, []any{"x", "a", "total", 1, 1}, []any{w.Name, w.Key, w.Level, w.Limit, w.Ahead})
	require.Len(t, w.Blocking, 1)
	require.Equal(t, []any{holder.Token(), "why", other.Owner()}, []any{w.Blocking[0].Token, w.Blocking[0].Note, w.Blocking[0].Owner})
}

// H3: a release that races a loss, or another release, ends the hold once.
func TestHoldEndsOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	rec := &testkit.Recorder{}
	opts := idle()
	opts.Hooks = rec.Hooks()
	s, _ := f.Session(opts)
	there, _ := f.Session(nil)
	for n := range 30 {
		p := acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
		var racing sync.WaitGroup
		racing.Go(func() { _ = sem(t, there, "x", 1).Evict(ctx, "i", "") })
		for range 1 + n%2 {
			racing.Go(func() { _ = p.Release(ctx) })
		}
		racing.Wait()
		<-p.Context().Done()
	}
	holds := func() (n int) {
		for _, said := range rec.Said("x") {
			if said.Call.Op == observe.Hold && said.Event == nil {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return holds() == 30 }, soon, tick)
	require.NoError(t, s.Close(ctx))
	rec.Settled(t)
	require.Equal(t, 30, holds())
}
