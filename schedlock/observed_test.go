package schedlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/schedlock"
)

type two struct {
	fixture
	*testkit.Recorder
	in, other instance
}

// H1 to H3: the hooks see each outcome of each claim and run once, and each begun call ends.
func TestHooksSeeEachOutcome(t *testing.T) {
	t.Parallel()
	own := errors.New("the function's own")
	once := schedlock.Tick(tick(1))
	for name, tt := range map[string]struct {
		opts *concurrency.SessionOptions
		do   func(t *testing.T, s two, ctx context.Context)
		want []string
	}{
		"done": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.in.Do(ctx, "x", nothing, once)
				require.NoError(t, err)
			},
			want: []string{"claim: granted", "run: done"},
		},
		"failed": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.in.Do(ctx, "x", func(context.Context, *schedlock.Run) error { return own }, once)
				require.ErrorIs(t, err, own)
			},
			want: []string{"claim: granted", "run: failed"},
		},
		"panic": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.Panics(t, func() {
					_, _ = s.in.Do(ctx, "x", func(context.Context, *schedlock.Run) error { panic("of a test") }, once)
				})
			},
			want: []string{"claim: granted", "run: failed (panic)"},
		},
		"the goroutine exits": {
			do: func(t *testing.T, s two, ctx context.Context) {
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _ = s.in.Do(ctx, "x", func(context.Context, *schedlock.Run) error { runtime.Goexit(); return nil }, once)
				}()
				closed(t, gone, "the goroutine")
			},
			want: []string{"claim: granted", "run: failed (panic)"},
		},
		"too long": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.in.Do(ctx, "x", func(ctx context.Context, _ *schedlock.Run) error { <-ctx.Done(); return nil }, once, schedlock.AtMost(50*time.Millisecond))
				require.ErrorIs(t, err, schedlock.ErrTooLong)
			},
			want: []string{"claim: granted", "run: failed (too_long)", "Overrun"},
		},
		"refused: claimed": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.other.Do(ctx, "x", nothing, once)
				require.NoError(t, err)
				_, err = s.in.Do(ctx, "x", nothing, once)
				require.NoError(t, err)
			},
			want: []string{"claim: refused (claimed)"},
		},
		"refused: busy": {
			do: func(t *testing.T, s two, ctx context.Context) {
				end := make(chan struct{})
				started, done := do(ctx, s.other.Locker, "x", end, once)
				got(t, started, "the other run")
				_, err := s.in.Do(ctx, "x", nothing, schedlock.Tick(tick(2)))
				require.NoError(t, err)
				close(end)
				require.NoError(t, got(t, done, "its end").err)
			},
			want: []string{"claim: refused (busy)"},
		},
		"refused: cooldown": { // A426: it was reported as busy
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.other.Do(ctx, "x", nothing, once, schedlock.AtLeast(time.Hour))
				require.NoError(t, err)
				_, err = s.in.Do(ctx, "x", nothing, schedlock.Tick(tick(2)), schedlock.AtLeast(time.Hour))
				require.NoError(t, err)
			},
			want: []string{"claim: refused (cooldown)"},
		},
		"refused: paused": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.other.Do(ctx, "x", nothing, schedlock.Tick(tick(0)))
				require.NoError(t, err)
				require.NoError(t, s.other.Pause(ctx, "x", "for a test"))
				_, err = s.in.Do(ctx, "x", nothing, once)
				require.NoError(t, err)
			},
			want: []string{"claim: refused (paused)"},
		},
		"refused: late": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.in.Do(ctx, "x", nothing, once, schedlock.LateBy(time.Minute))
				require.NoError(t, err)
			},
			want: []string{"claim: refused (late)"},
		},
		"refused: mismatch": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.other.Do(ctx, "x", nothing, once, schedlock.Every(time.Hour))
				require.NoError(t, err)
				// A minute later: Every takes the start of the period, which may be the same for both in the
				// first minute of an hour.
				_, err = s.in.Do(ctx, "x", nothing, schedlock.Tick(tick(60)), schedlock.Every(time.Minute))
				require.ErrorIs(t, err, schedlock.ErrSettings)
			},
			want: []string{"claim: refused (mismatch)"},
		},
		"error: invalid": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.in.Do(ctx, "x", nil)
				require.ErrorIs(t, err, schedlock.ErrInvalid)
				_, err = s.in.Do(ctx, "x", nothing, schedlock.Tick(time.Now().Add(time.Hour)))
				require.ErrorIs(t, err, schedlock.ErrInvalid)
			},
			want: []string{"claim: error (invalid)", "claim: error (invalid)"},
		},
		"error: closed": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, s.in.sess.Close(ctx))
				_, err := s.in.Do(ctx, "x", nothing, once)
				require.ErrorIs(t, err, schedlock.ErrClosed)
			},
			want: []string{"claim: error (closed)"},
		},
		"gave up: canceled": {
			do: func(t *testing.T, s two, ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				_, err := s.in.Do(ctx, "x", nothing, once)
				require.ErrorIs(t, err, context.Canceled)
			},
			want: []string{"claim: gave_up (canceled)"},
		},
		"gave up: unavailable": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := s.in.Do(ctx, "x", nothing, once)
				require.NoError(t, err)
				s.in.client.Cut()
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				_, err = s.in.Do(ctx, "x", nothing, schedlock.Tick(tick(2)))
				require.ErrorIs(t, err, schedlock.ErrUnavailable)
			},
			want: []string{"claim: granted", "run: done", "claim: gave_up (unavailable)"},
		},
		"lost: unlocked": {
			do: func(t *testing.T, s two, ctx context.Context) {
				started, done := do(ctx, s.in.Locker, "x", nil, once)
				got(t, started, "the run")
				require.NoError(t, s.other.Unlock(ctx, "x", "for a test"))
				require.ErrorIs(t, got(t, done, "its end").err, schedlock.ErrUnlocked)
			},
			want: []string{"claim: granted", "run: lost (evicted)", "Overrun"},
		},
		"lost: the session": {
			do: func(t *testing.T, s two, ctx context.Context) {
				started, done := do(ctx, s.in.Locker, "x", nil, once)
				got(t, started, "the run")
				presence := s.Keys(fmt.Sprintf("session/%016x/", int64(s.in.sess.Lease())))
				require.Len(t, presence, 1)
				_, err := s.Client().Delete(ctx, presence[0])
				require.NoError(t, err)
				require.ErrorIs(t, got(t, done, "its end").err, schedlock.ErrLost)
			},
			want: []string{"claim: granted", "run: lost (session)", "Overrun"},
		},
		"lost: the lock is gone": {
			do: func(t *testing.T, s two, ctx context.Context) {
				started, done := do(ctx, s.in.Locker, "x", nil, once)
				got(t, started, "the run")
				for _, key := range s.Keys("/lock") {
					_, err := s.Client().Delete(ctx, key)
					require.NoError(t, err)
				}
				require.ErrorIs(t, got(t, done, "its end").err, schedlock.ErrLost)
			},
			want: []string{"claim: granted", "run: lost (key_gone)", "Overrun"},
		},
		"not confirmed": {
			opts: patient(),
			do: func(t *testing.T, s two, ctx context.Context) {
				res, err := s.in.Do(ctx, "x", func(context.Context, *schedlock.Run) error { s.in.client.Cut(); return nil }, once)
				require.NoError(t, err)
				require.ErrorIs(t, res.Unconfirmed, schedlock.ErrUnconfirmed)
			},
			want: []string{"claim: granted", "run: done (not_confirmed)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := two{fixture: shared(t), Recorder: &testkit.Recorder{}}
			opts := tt.opts
			if opts == nil {
				opts = &concurrency.SessionOptions{TTL: 300 * time.Second}
			}
			opts.Hooks = s.Hooks()
			s.in, s.other = s.instance(opts, nil), s.instance(nil, nil)
			tt.do(t, s, ctxT(t))
			s.Await(t, "x", tt.want...)
			s.Settled(t)
			s.in.client.Heal()
			for _, said := range s.Said("x") {
				if said.Text == "run: done" {
					require.Equal(t, []any{observe.Job, 1, true}, []any{said.Call.Kind, said.Outcome.Attempt, said.Outcome.Token > 0})
				}
			}
		})
	}
}

// H1, H2: the function has the values that the hooks have given its run, not those of its claim.
func TestContextsOfHooks(t *testing.T) {
	t.Parallel()
	type key struct{}
	in := shared(t).instance(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: []observe.Hooks{{
		Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			return context.WithValue(ctx, key{}, c.Op), nil
		},
	}}}, nil)
	ctx, cancel := context.WithCancel(ctxT(t))
	_, err := in.Do(ctx, "x", func(ctx context.Context, r *schedlock.Run) error {
		require.Equal(t, observe.Run, ctx.Value(key{}))
		require.Equal(t, observe.Run, r.Context().Value(key{}))
		cancel()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, context.Canceled)
}

// A183 in internal/proof/tested-failures.md: a claim by Every says so, since its call may come at any time in the
// period, and is no late start.
func TestHooksSeeThePeriod(t *testing.T) {
	t.Parallel()
	s := two{fixture: shared(t), Recorder: &testkit.Recorder{}}
	s.in = s.instance(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: s.Hooks()}, nil)
	for want, opts := range map[time.Duration][]schedlock.CallOption{0: {schedlock.Tick(tick(0))}, time.Hour: {schedlock.Every(time.Hour)}} {
		name := want.String()
		_, err := s.in.Do(ctxT(t), name, nothing, opts...)
		require.NoError(t, err)
		s.Await(t, name, "claim: granted", "run: done")
		require.Equal(t, want, s.Said(name)[0].Call.Every)
	}
}
