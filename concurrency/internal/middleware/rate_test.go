package middleware

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestNewRefusesBadRates: each setting that a rate excludes is named when the middleware is made.
func TestNewRefusesBadRates(t *testing.T) {
	t.Parallel()
	alone := Settings{Rate: new(concurrency.RateLimiter), Wait: time.Second}
	for _, keyed := range []bool{false, true} {
		s := alone
		s.Keyed = keyed
		_, err := New("limit: new", s)
		require.NoError(t, err)
	}
	for want, change := range map[string]func(*Settings){
		"the limiter is nil, and so is Options.Rate":                     func(s *Settings) { s.Rate = nil },
		"limit: new: the limiter is nil":                                 func(s *Settings) { s.Limiter = (*concurrency.KeyedLimiter)(nil) },
		"concurrency.Single is nil":                                      func(s *Settings) { s.Limiter = concurrency.Single(nil) },
		"Options.Key is nil":                                             func(s *Settings) { s.Limiter = &stub{} },
		"Options.Outage Share with Options.Rate: a session":              func(s *Settings) { s.Outage = Share },
		"Options.Outage Share with Options.Rate: a session that has los": func(s *Settings) { s.Limiter, s.Keyed, s.Outage = &stub{}, true, Share },
		"Options.MaxWaiters 3 without a limiter":                         func(s *Settings) { s.MaxWaiters = 3 },
		"Options.Each without a limiter":                                 func(s *Settings) { s.Each = true },
		"Options.Wait -1s is not between":                                func(s *Settings) { s.Wait = -time.Second },
	} {
		s := alone
		change(&s)
		_, err := New("limit: new", s)
		require.ErrorIs(t, err, concurrency.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
}

// TestRefuseForTheRate: a request without a token has an answer of its own, unless it has ended
// meanwhile.
func TestRefuseForTheRate(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	exceeded := &concurrency.RateExceededError{Name: "mails"}
	waited := waitEnded{fmt.Errorf("%w: %w", context.DeadlineExceeded, exceeded), exceeded}
	for name, c := range map[string]struct {
		ctx    context.Context
		err    error
		want   Reason
		retry  bool
		report bool
	}{
		"no token":                      {t.Context(), fmt.Errorf("take: %w", exceeded), RateExceeded, true, false},
		"none within Wait":              {t.Context(), waited, RateExceeded, true, false},
		"client left":                   {ended, errors.Join(context.Canceled, exceeded), Ended, false, false},
		"another rate is stored":        {t.Context(), &concurrency.RateMismatchError{}, Internal, false, true},
		"the permit was lost meanwhile": {t.Context(), errors.Join(exceeded, &concurrency.LostError{Cause: concurrency.ErrEvicted}), Lost, true, true},
	} {
		a, err := New("limit", Settings{Limiter: &stub{}, Keyed: true})
		require.NoError(t, err)
		got := a.Refuse(c.ctx, "k", false, c.err)
		require.Equal(t, c.want, got.Reason, name)
		require.Equal(t, c.retry, got.RetryAfter > 0, name)
		require.Equal(t, c.report, got.Report, name)
	}
	require.ErrorIs(t, waited, concurrency.ErrRateExceeded)
	require.NotErrorIs(t, waited, context.DeadlineExceeded)
}

// TestRetryAfterCountsTokens: clients without a token come back one after the other, as fast as this
// process has tokens, and never faster than the fleet has them.
func TestRetryAfterCountsTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      concurrency.RateExceededError
		of       int
		from, to time.Duration // of the last of them
	}{
		"a fresh process":          {concurrency.RateExceededError{}, 1, time.Second, 1250 * time.Millisecond},
		"the token is on its way":  {concurrency.RateExceededError{Rate: concurrency.Rate{PerSecond: 1, Burst: 1}, RetryAfter: time.Millisecond}, 10, 10 * time.Second, 13 * time.Second},
		"this process has a tenth": {concurrency.RateExceededError{Rate: concurrency.Rate{PerSecond: 10, Burst: 10}, RetryAfter: time.Second}, 10, 10 * time.Second, 13 * time.Second},
		"behind calls that wait":   {concurrency.RateExceededError{Rate: concurrency.Rate{PerSecond: 10, Burst: 10}, RetryAfter: 10 * time.Second, Waiting: 99}, 11, 11 * time.Second, 14 * time.Second},
		"at most a minute":         {concurrency.RateExceededError{Rate: concurrency.Rate{PerSecond: 1e-5, Burst: 1}, RetryAfter: time.Hour}, 3, latest, time.Minute},
	} {
		a, err := New("limit", Settings{Limiter: &stub{}, Keyed: true})
		require.NoError(t, err)
		var last time.Duration
		for range c.of {
			last = a.afterRate(&c.err)
		}
		require.GreaterOrEqual(t, last, c.from-100*time.Millisecond, name)
		require.LessOrEqual(t, last, c.to, name)
	}
}

// TestTokenWithinThePermit: work that gets no token does not begin, although its permit was granted.
func TestTokenWithinThePermit(t *testing.T) {
	t.Parallel()
	var none error
	called := 0
	a, err := New("limit", Settings{Limiter: &stub{}, Keyed: true, Do: doing(&none, &called)})
	require.NoError(t, err)
	a.Rate = new(concurrency.RateLimiter)
	ended, cancel := context.WithCancelCause(t.Context())
	why := errors.New("planned")
	cancel(why)
	ran, err := a.Run(ended, "k", nil, func(error) {}, func(context.Context) { t.Error("it ran") })
	require.False(t, ran)
	require.ErrorIs(t, err, why)
	require.Equal(t, 1, called)
}
