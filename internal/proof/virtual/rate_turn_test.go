package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// TestRateTurnAfterTheDeadline: Wait fails at once if its turn comes after its deadline for certain, says when the turn would
// come, and does not claim that ctx has ended (A171 in internal/proof/tested-failures.md). Calls that can still have
// their turn wait for it, behind those that were refused as well.
func TestRateTurnAfterTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		l := on[0].rate(0.1, 1)
		require.NoError(t, l.Wait(t.Context()))
		taken := time.Now()
		refused := func(l *concurrency.RateLimiter, ctx context.Context, within time.Duration) {
			t.Helper()
			begun := time.Now()
			err := l.Wait(ctx)
			require.ErrorIs(t, err, concurrency.ErrRateExceeded)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "calls that wait before this one: 0; its turn comes in ")
			var exceeded *concurrency.RateExceededError
			require.ErrorAs(t, err, &exceeded)
			require.InDelta(t, 10-time.Since(taken).Seconds(), exceeded.RetryAfter.Seconds(), 0.1)
			require.LessOrEqual(t, time.Since(begun), within)
		}
		time.Sleep(time.Second)
		refused(l, within(t, 8*time.Second), 0)
		refused(on[0].rate(0.1, 1), within(t, time.Nanosecond), 0)
		got := make(chan error, 1)
		go func() { got <- l.Wait(within(t, 9*time.Second+100*time.Millisecond)) }()
		require.NoError(t, <-got)
		require.InDelta(t, 10, time.Since(taken).Seconds(), 0.1)

		taken = time.Now()
		require.NoError(t, on[0].session.Close(t.Context()))
		refused(on[1].rate(0.1, 1), within(t, 5*time.Second), time.Second) // it has not read the rate before
		l = on[1].rate(0.1, 1)
		require.NoError(t, l.SetRate(t.Context(), concurrency.Rate{PerSecond: 5, Burst: 1}))
		require.NoError(t, l.Wait(within(t, 3*time.Second)), "it has raised the rate itself, and not read it yet")
	})
}

// TestRateTurnBehindOthers: a turn counts the calls that wait before. A call that is refused because of one may have its
// turn if that one ends without a token, and is called again (A171).
func TestRateTurnBehindOthers(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		l := on[0].rate(0.1, 1)
		require.NoError(t, l.Wait(t.Context()))
		first, leaves := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Wait(first) }()
		synctest.Wait()
		ctx := within(t, 15*time.Second)
		err := l.Wait(ctx)
		require.ErrorContains(t, err, "calls that wait before this one: 1; its turn comes in 20s or later, and its ctx ends in 15s")
		var exceeded *concurrency.RateExceededError
		require.ErrorAs(t, err, &exceeded)
		require.InDelta(t, 20, exceeded.RetryAfter.Seconds(), 0.1)
		leaves()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, l.Wait(ctx), "its turn comes in 10 s now")
	})
}

// TestRateTurnsOfMany: of many calls with one deadline those wait that can have a turn, and the others fail at once.
func TestRateTurnsOfMany(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		l := on[0].rate(10, 2)
		require.NoError(t, l.Wait(t.Context()))
		time.Sleep(time.Minute / 2)
		for l.Allow() == nil {
		}
		begun := time.Now()
		var k takers
		var mu sync.Mutex
		var calls sync.WaitGroup
		atOnce := 0
		for range 100 {
			calls.Go(func() {
				if l.Wait(within(t, time.Second)) == nil {
					k.took(0)
				} else if time.Since(begun) == 0 {
					mu.Lock()
					defer mu.Unlock()
					atOnce++
				}
			})
		}
		calls.Wait()
		require.InDelta(t, 10, len(k.spans), 1)
		require.GreaterOrEqual(t, atOnce, 89)
		require.NoError(t, check.Rate(k.spans, 10, 2))
	})
}

// rateAlone serves requests that take tokens alone.
func rateAlone(t *testing.T, l *concurrency.RateLimiter, wait time.Duration) (get func() (*httptest.ResponseRecorder, time.Duration)) {
	t.Helper()
	mw, err := limithttp.Middleware(nil, limithttp.Options{Rate: l, Wait: wait})
	require.NoError(t, err)
	h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return func() (*httptest.ResponseRecorder, time.Duration) {
		begun, answer := time.Now(), httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		return answer, time.Since(begun)
	}
}

// TestRefusedBeforeWait: a middleware refuses a request at once whose token comes after Options.Wait.
func TestRefusedBeforeWait(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		get := rateAlone(t, on[0].rate(0.1, 1), 3*time.Second)
		answer, _ := get()
		require.Equal(t, http.StatusOK, answer.Code)
		answer, waited := get()
		require.Equal(t, http.StatusServiceUnavailable, answer.Code)
		require.Contains(t, answer.Body.String(), `"`+string(limithttp.CodeRateExceeded)+`"`)
		require.Zero(t, waited)
		after, err := strconv.Atoi(answer.Header().Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, after, 9)
		time.Sleep(8 * time.Second)
		answer, _ = get()
		require.Equal(t, http.StatusOK, answer.Code, "it comes in two seconds")
	})
}

// TestRateOfAStart: the first requests of a process are not refused because the process has just begun, or was idle, also
// with a Wait of 0; as soon as it knows the rate, requests above it are refused at once (A172 in
// internal/proof/tested-failures.md).
func TestRateOfAStart(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Millisecond} {
		for _, r := range []concurrency.Rate{{PerSecond: 100, Burst: 50}, {PerSecond: 2, Burst: 1}, {PerSecond: 0.5, Burst: 3}} {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				get := rateAlone(t, on[0].rate(r.PerSecond, r.Burst), wait)
				for range 3 {
					var ok int
					for range 2 {
						answer, waited := get()
						if answer.Code == http.StatusOK {
							ok++
						}
						require.LessOrEqual(t, waited, time.Second)
					}
					require.Positive(t, ok)
					for answer, _ := get(); answer.Code == http.StatusOK; answer, _ = get() {
					}
					answer, waited := get()
					require.Equal(t, http.StatusServiceUnavailable, answer.Code)
					require.LessOrEqual(t, waited, wait)
					time.Sleep(5 * time.Minute)
				}
			})
		}
	}
}
