package middleware

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/internal/share"
)

// stub is a limiter whose semaphores are not used: Settings.Do takes their place.
type stub struct{}

func (*stub) Key(string) *concurrency.Semaphore { return nil }

// doing is a Do that grants, or returns err.
func doing(err *error, called *int) func(*concurrency.Semaphore, context.Context, func(context.Context, *concurrency.Permit) error, ...concurrency.AcquireOption) error {
	return func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		*called++
		if *err != nil {
			return *err
		}
		return fn(ctx, nil)
	}
}

// TestNewRefusesBadSettings: each wrong setting is named when the middleware is made.
func TestNewRefusesBadSettings(t *testing.T) {
	t.Parallel()
	good := Settings{Limiter: &stub{}, Keyed: true, Wait: time.Second, MaxWaiters: 3}
	_, err := New("limit: new", good)
	require.NoError(t, err)
	for want, change := range map[string]func(*Settings){
		"the limiter is nil":                        func(s *Settings) { s.Limiter = nil },
		"limit: new: the limiter is nil":            func(s *Settings) { s.Limiter = (*concurrency.KeyedLimiter)(nil) },
		"concurrency.Single is nil":                 func(s *Settings) { s.Limiter = concurrency.Single(nil) },
		"Options.Key is nil":                        func(s *Settings) { s.Keyed = false },
		"Options.Outage -1 is neither":              func(s *Settings) { s.Outage = -1 },
		"Options.Outage 3 is neither":               func(s *Settings) { s.Outage = 3 },
		"Options.Outage: the outage policy Share":   func(s *Settings) { s.Outage = Share },
		"Options.Wait -1s is not between":           func(s *Settings) { s.Wait = -time.Second },
		"Options.Wait 25h0m0s is not between":       func(s *Settings) { s.Wait = 25 * time.Hour },
		"Options.Patience -1s is not between":       func(s *Settings) { s.Patience = -time.Second },
		"Options.Patience 5ns is not between":       func(s *Settings) { s.Patience = 5 },
		"Options.MaxWaiters -1 is negative":         func(s *Settings) { s.MaxWaiters = -1 },
		"Options.MaxWaiters 3 without Options.Wait": func(s *Settings) { s.Wait = 0 },
	} {
		s := good
		change(&s)
		_, err := New("limit: new", s)
		require.ErrorIs(t, err, concurrency.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
}

// TestRefuse: each error of a call for a permit has one answer.
func TestRefuse(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	lost := &concurrency.LostError{Name: "n", Cause: concurrency.ErrEvicted}
	for _, c := range []struct {
		name   string
		ctx    context.Context
		err    error
		want   Reason
		retry  bool
		report bool
	}{
		{"key", nil, &concurrency.FullError{Limit: 5, Used: 5}, KeyFull, true, false},
		{"key, by its level", nil, &concurrency.FullError{Limit: 5, Waiting: 5, Level: "key"}, KeyFull, true, false},
		{"paused", nil, &concurrency.FullError{Limit: 0, RetryAfter: time.Second}, KeyFull, false, false},
		{"total", nil, fmt.Errorf("acquire: %w", &concurrency.FullError{Limit: 9, Used: 9, Level: "total"}), TotalFull, true, false},
		{"total paused", nil, &concurrency.FullError{Level: "total"}, TotalFull, false, false},
		{"etcd is slow", nil, errors.Join(&concurrency.FullError{Limit: 5}, share.ErrUnseen), Unavailable, true, false},
		{"ID in use", nil, &concurrency.HeldError{}, Held, true, false},
		{"invalid", nil, concurrency.ErrInvalid, Internal, false, true},
		{"mismatch", nil, &concurrency.LimitMismatchError{}, Internal, false, true},
		{"evicted while it waited", nil, lost, Lost, true, true},
		{"released by its ID", nil, &concurrency.LostError{Cause: concurrency.ErrReleased}, Lost, true, true},
		{"client left", ended, fmt.Errorf("acquire: %w", context.Canceled), Ended, false, false},
		{"client left in an outage", ended, errors.Join(context.Canceled, &concurrency.UnavailableError{}), Ended, false, false},
		{"client left as the permit was lost", ended, lost, Lost, true, true},
		{"etcd away", nil, &concurrency.UnavailableError{}, Unavailable, true, true},
		{"too many requests", nil, concurrency.ErrTooMany, Unavailable, true, true},
		{"closed", nil, concurrency.ErrClosed, Unavailable, true, true},
		{"another error of etcd's", nil, errors.New("out of space"), Unavailable, true, true},
	} {
		a, err := New("limit", Settings{Limiter: &stub{}, Keyed: true})
		require.NoError(t, err)
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		got := a.Refuse(c.ctx, "k", false, c.err)
		require.Equal(t, c.want, got.Reason, c.name)
		require.Equal(t, c.retry, got.RetryAfter > 0, c.name)
		require.Equal(t, c.report, got.Report, c.name)
	}
}

// TestOutage: an outage begins after etcd was silent for Patience and never by latency; then one
// request a second asks, the others are answered at once; the first answer ends it.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var err error
			var called, ran, reported int
			var changes []bool
			policy := Closed
			if open {
				policy = Open
			}
			a, bad := New("limit", Settings{
				Limiter: &stub{}, Keyed: true, Outage: policy, Patience: time.Minute, Do: doing(&err, &called),
				Check: func(context.Context, *concurrency.Semaphore, []concurrency.AcquireOption) (int64, error) {
					return 1, nil
				},
				OnOutage: func(err error) { changes = append(changes, err != nil) },
			})
			require.NoError(t, bad)
			run := func() error {
				_, err := a.Run(t.Context(), "k", nil, func(error) { reported++ }, func(context.Context) { ran++ })
				return err
			}
			require.NoError(t, run())
			require.Equal(t, 1, ran)

			time.Sleep(time.Hour)
			err = &concurrency.UnavailableError{Since: time.Now().Add(-time.Second)}
			for range 3 {
				require.ErrorIs(t, run(), concurrency.ErrUnavailable, "that is latency")
			}
			require.Equal(t, 4, called)
			require.Equal(t, 1, ran)
			require.Empty(t, changes)

			a.outage.Answered()
			err = &concurrency.UnavailableError{Since: time.Now().Add(-time.Hour)}
			require.ErrorIs(t, run(), concurrency.ErrUnavailable, "etcd has answered another request since then")
			require.Empty(t, changes)
			time.Sleep(time.Minute)
			for range 10 {
				if open {
					require.NoError(t, run())
				} else {
					require.ErrorIs(t, run(), concurrency.ErrUnavailable)
				}
			}
			require.Equal(t, 6, called, "one request has found it, the others do not ask")
			require.Equal(t, []bool{true}, changes)
			if open {
				require.Equal(t, 11, ran)
				require.Equal(t, 10, reported, "each request without a permit is reported")
			} else {
				require.Equal(t, 1, ran)
			}

			err = &concurrency.FullError{Limit: 1, Used: 1}
			time.Sleep(outage.Every)
			require.ErrorIs(t, run(), concurrency.ErrFull, "etcd has answered")
			require.ErrorIs(t, run(), concurrency.ErrFull)
			require.Equal(t, []bool{true, false}, changes)

			gone, cancel := context.WithCancel(t.Context())
			cancel()
			err = &concurrency.UnavailableError{Since: time.Now().Add(-time.Hour)}
			before := ran
			time.Sleep(time.Hour)
			_, got := a.Run(gone, "k", nil, func(error) {}, func(context.Context) { ran++ })
			require.Error(t, got, "a client that has left is not served")
			require.Equal(t, before, ran)
		})
	}
}

// TestEmptyKey: a request without a key asks for nothing.
func TestEmptyKey(t *testing.T) {
	t.Parallel()
	var err error
	called := 0
	a, bad := New("limit", Settings{Limiter: &stub{}, Keyed: true, Do: doing(&err, &called)})
	require.NoError(t, bad)
	ran, got := a.Run(t.Context(), "", nil, nil, nil)
	require.False(t, ran)
	require.ErrorIs(t, got, concurrency.ErrInvalid)
	require.ErrorContains(t, got, "Options.Key")
	_, got = a.Acquire(t.Context(), "", nil, nil)
	require.ErrorIs(t, got, concurrency.ErrInvalid)
	require.Zero(t, called)
}
