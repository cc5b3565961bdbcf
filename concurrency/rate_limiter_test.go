package concurrency_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

func rateLimiter(t testing.TB, s *concurrency.Session, name string, perSecond float64, burst int) *concurrency.RateLimiter {
	t.Helper()
	l, err := concurrency.NewRateLimiter(s, name, concurrency.Rate{PerSecond: perSecond, Burst: burst}, nil)
	require.NoError(t, err)
	return l
}

// A rate is one record; shares are keys only while they are held.
func TestRateLimiter(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := rateLimiter(t, s, "mail", 1000, 100), rateLimiter(t, other, "mail", 1000, 100)
	require.Empty(t, f.Keys("/rate/"))
	for range 50 {
		require.NoError(t, here.Wait(ctx))
		require.NoError(t, there.Wait(ctx))
	}
	st, err := here.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, concurrency.Rate{PerSecond: 1000, Burst: 100}, st.Rate)
	require.True(t, st.Stored)
	require.Equal(t, 64, st.Shares)
	require.Len(t, st.Holders, 2)
	require.Len(t, f.Keys("/rate/mail/limit"), 1)

	var listed []concurrency.QueueInfo
	for q, err := range s.Queues(ctx) {
		require.NoError(t, err)
		q.Requests = min(q.Requests, 1)
		listed = append(listed, q)
	}
	require.Equal(t, []concurrency.QueueInfo{{Kind: concurrency.KindRate, Name: "mail", Stored: true, Requests: 1}}, listed)

	taken := 0
	for here.Allow() == nil {
		taken++
		require.Less(t, taken, 1_000_000, "Allow refuses when there is no token")
	}
	err = here.Allow()
	if err != nil {
		require.ErrorIs(t, err, concurrency.ErrRateExceeded)
		require.NotErrorIs(t, err, concurrency.ErrLimitMismatch)
		require.ErrorContains(t, err, `"mail"`)
	}
	require.NoError(t, s.Close(ctx))
	require.ErrorIs(t, here.Allow(), concurrency.ErrClosed)
	require.ErrorIs(t, here.Wait(ctx), concurrency.ErrClosed)
	require.NoError(t, there.Wait(ctx))
	require.NoError(t, other.Close(ctx))
	require.Len(t, f.Keys("/rate/"), 1, "the rate")
}

// A refusal says whether the rate is exceeded, or this process merely lacks a share of it.
func TestRateRefusalSaysWhy(t *testing.T) {
	t.Parallel()
	r := concurrency.Rate{PerSecond: 5, Burst: 2}
	for want, e := range map[string]*concurrency.RateExceededError{
		"there is no token yet: this process has not read the rate":                                                {Starting: true},
		"there is no token yet: this process has no share of the rate that it may use yet (5 per second, burst 2)": {Rate: r},
		"the rate is exceeded: 5 per second, burst 2":                                                              {Rate: r, RetryAfter: time.Second},
	} {
		require.EqualError(t, e, want)
		require.ErrorIs(t, e, concurrency.ErrRateExceeded)
	}
}

// Bad input is an error at once, and nothing of it is in etcd.
func TestRateLimiterBadInput(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	before := f.Keys("")
	good := concurrency.Rate{PerSecond: 5, Burst: 5}
	for _, r := range []concurrency.Rate{
		{}, {PerSecond: 0, Burst: 1}, {PerSecond: -1, Burst: 1}, {PerSecond: math.NaN(), Burst: 1}, {PerSecond: math.Inf(1), Burst: 1},
		{PerSecond: 1e-6, Burst: 1}, {PerSecond: 1e7, Burst: 1}, {PerSecond: 1, Burst: 0}, {PerSecond: 1, Burst: -1}, {PerSecond: 1, Burst: math.MaxInt32 + 1},
	} {
		_, err := concurrency.NewRateLimiter(s, "x", r, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%v", r)
		require.ErrorContains(t, err, `"x"`)
		if r.Burst != 0 || r.PerSecond != 1 { // SetRate keeps the stored burst
			require.ErrorIs(t, rateLimiter(t, s, "x", 5, 5).SetRate(ctx, r), concurrency.ErrInvalid, "%v", r)
		}
	}
	for _, name := range []string{"", "a/b", "\xff"} {
		_, err := concurrency.NewRateLimiter(s, name, good, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", name)
	}
	_, err := concurrency.NewRateLimiter(nil, "x", good, nil)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	l := rateLimiter(t, s, "x", 5, 5)
	require.ErrorIs(t, l.SetRate(ctx, good), concurrency.ErrNoLimit, "no such rate")
	require.ErrorIs(t, l.SetRate(ctx, good, nil), concurrency.ErrInvalid)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, l.Wait(ended), context.Canceled)
	require.Equal(t, before, f.Keys(""))
	require.NoError(t, s.Close(ctx))
	_, err = concurrency.NewRateLimiter(s, "x", good, nil)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorIs(t, l.SetRate(ctx, good), concurrency.ErrClosed)
	_, err = l.Status(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
}

// The stored rate is compared with the program's until they agree, as a semaphore's limit is.
func TestRateMismatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	first := rateLimiter(t, s, "x", 500, 50)
	require.NoError(t, first.Wait(ctx))
	other, _ := f.Session(idle())
	second := rateLimiter(t, other, "x", 500, 60)
	var mismatch *concurrency.RateMismatchError
	err := second.Wait(ctx)
	require.ErrorAs(t, err, &mismatch)
	require.ErrorIs(t, err, concurrency.ErrLimitMismatch)
	require.Equal(t, concurrency.RateMismatchError{Name: "x", Stored: concurrency.Rate{PerSecond: 500, Burst: 50}, Wanted: concurrency.Rate{PerSecond: 500, Burst: 60}}, *mismatch)
	require.ErrorContains(t, err, "AdoptRate")
	require.ErrorIs(t, second.Allow(), concurrency.ErrLimitMismatch)
	require.ErrorIs(t, rateLimiter(t, s, "x", 400, 50).Allow(), concurrency.ErrLimitMismatch, "on a session that has shares")

	adopts, err := concurrency.NewRateLimiter(other, "x", concurrency.Rate{PerSecond: 1, Burst: 1}, &concurrency.RateLimiterOptions{AdoptRate: true})
	require.NoError(t, err)
	require.NoError(t, adopts.Wait(ctx))

	require.NoError(t, first.SetRate(ctx, concurrency.Rate{PerSecond: 500, Burst: 60}))
	require.NoError(t, first.Wait(ctx), "it has agreed once")
	require.Eventually(t, func() bool { return second.Wait(ctx) == nil }, soon, tick, "now they agree")
	st, err := adopts.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, concurrency.Rate{PerSecond: 500, Burst: 60}, st.Rate)
}

// A value that is no rate is an error, and not a limit.
func TestRateIsUnreadable(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	l := rateLimiter(t, s, "x", 500, 50)
	require.NoError(t, l.Wait(ctx))
	key := f.Keys("/rate/x/limit")[0]
	for _, bad := range []string{
		"no JSON", `{"v":1,"limit":3,"nonce":"n","at":1}`, `{"v":1,"limit":0,"nonce":"n","at":1,"rate":{"per_second":1,"burst":1}}`,
		`{"v":1,"limit":3,"nonce":"n","at":1,"rate":{"per_second":5,"burst":2}}`, `{"v":1,"limit":3,"nonce":"n","at":1,"rate":{"per_second":-5,"burst":5}}`,
	} {
		_, err := c.Put(ctx, key, bad)
		require.NoError(t, err)
		other, _ := f.Session(idle())
		err = rateLimiter(t, other, "x", 500, 50).Wait(ctx)
		require.ErrorContains(t, err, "cannot be read", bad)
	}
}

// A rate whose record was deleted by hand is stored again.
func TestRateIsStoredAgain(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	l := rateLimiter(t, s, "x", 500, 50)
	require.NoError(t, l.Wait(ctx))
	key := f.Keys("/rate/x/limit")[0]
	_, err := c.Delete(ctx, key)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.Keys("/rate/x/limit")) == 1 }, soon, 10*tick)
	require.NoError(t, l.Wait(ctx))
}

// A265: SetRate without a Burst keeps the stored one at the moment of the change, and not one that was read before.
func TestSetRateKeepsTheBurst(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	l := rateLimiter(t, s, "mail", 5, 5)
	stored := func() concurrency.Rate {
		st, err := l.Status(ctx)
		require.NoError(t, err)
		return st.Rate
	}
	require.NoError(t, l.SetRate(ctx, concurrency.Rate{PerSecond: 7}, concurrency.CreateLimit()))
	require.Equal(t, concurrency.Rate{PerSecond: 7, Burst: 1}, stored())
	other, _ := f.Session(idle())
	require.NoError(t, rateLimiter(t, other, "mail", 1, 1).SetRate(ctx, concurrency.Rate{PerSecond: 7, Burst: 9}))
	require.NoError(t, l.SetRate(ctx, concurrency.Rate{PerSecond: 8}))
	require.Equal(t, concurrency.Rate{PerSecond: 8, Burst: 9}, stored())
}
