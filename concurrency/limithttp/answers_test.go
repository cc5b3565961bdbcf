package limithttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/share"
)

// stub is a limiter whose semaphores are not used.
type stub struct{}

func (*stub) Key(string) *concurrency.Semaphore { return nil }

type doFunc = func(*concurrency.Semaphore, context.Context, func(context.Context, *concurrency.Permit) error, ...concurrency.AcquireOption) error

// stubbed is a handler behind a middleware with another Do.
func stubbed(t testing.TB, o Options, do doFunc, h http.HandlerFunc) http.Handler {
	t.Helper()
	if o.Key == nil {
		o.Key = func(*http.Request) (string, bool) { return "acme", true }
	}
	c, err := configure("middleware", &stub{}, o)
	require.NoError(t, err)
	c.shared.Do = do
	c.shared.Check = func(context.Context, *concurrency.Semaphore, []concurrency.AcquireOption) (int64, error) {
		return 1, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, h) })
}

// refusing is a Do that does not grant.
func refusing(err error) doFunc {
	return func(*concurrency.Semaphore, context.Context, func(context.Context, *concurrency.Permit) error, ...concurrency.AcquireOption) error {
		return err
	}
}

// TestStatusCodes: each end of a call for a permit has one status, and each refusal of a full limit
// says when to come back.
func TestStatusCodes(t *testing.T) {
	t.Parallel()
	quota, capacity := "https://iana.org/assignments/http-problem-types#quota-exceeded", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	for _, c := range []struct {
		name    string
		err     error
		status  int
		code    Code
		kind    string
		policy  string
		least   int // of Retry-After; 0 is none
		most    int
		reports bool
	}{
		{"key", &concurrency.FullError{Limit: 5, Used: 5}, 429, CodeKeyFull, quota, `"concurrency";q=5;qu="concurrent-requests"`, 1, 2, false},
		{"key with an estimate", &concurrency.FullError{Limit: 5, Used: 5, Level: "key", RetryAfter: 20 * time.Second}, 429, CodeKeyFull, quota, `"concurrency";q=5;qu="concurrent-requests"`, 20, 26, false},
		{"key with a long estimate", &concurrency.FullError{Limit: 5, Used: 5, RetryAfter: time.Hour}, 429, CodeKeyFull, quota, `"concurrency";q=5;qu="concurrent-requests"`, 48, 60, false},
		{"key with a short estimate", &concurrency.FullError{Limit: 5, Used: 5, RetryAfter: time.Millisecond}, 429, CodeKeyFull, quota, `"concurrency";q=5;qu="concurrent-requests"`, 1, 2, false},
		{"paused", &concurrency.FullError{}, 429, CodeKeyFull, quota, `"concurrency";q=0;qu="concurrent-requests"`, 0, 0, false},
		{"total", &concurrency.FullError{Limit: 200, Used: 200, Level: "total"}, 503, CodeTotalFull, capacity, "", 1, 2, false},
		{"paused total", &concurrency.FullError{Level: "total"}, 503, CodeTotalFull, capacity, "", 0, 0, false},
		{"etcd is slow", errors.Join(&concurrency.FullError{Limit: 5}, share.ErrUnseen), 503, CodeUnavailable, "", "", 1, 2, false},
		{"outage", &concurrency.UnavailableError{}, 503, CodeUnavailable, "", "", 1, 2, true},
		{"session closed", concurrency.ErrClosed, 503, CodeUnavailable, "", "", 1, 2, true},
		{"too many requests of the session", concurrency.ErrTooMany, 503, CodeUnavailable, "", "", 1, 2, true},
		{"evicted while it waited", &concurrency.LostError{Cause: concurrency.ErrEvicted}, 503, CodeLost, "", "", 1, 2, true},
		{"ID in use", &concurrency.HeldError{}, 409, CodeHeld, "", "", 1, 2, false},
		{"bad option, or a weight above a limit", concurrency.ErrInvalid, 500, CodeInternal, "", "", 0, 0, true},
		{"another limit is stored", &concurrency.LimitMismatchError{}, 500, CodeInternal, "", "", 0, 0, true},
		{"rate", &concurrency.RateExceededError{}, 503, CodeRateExceeded, capacity, "", 1, 2, false},
		{"rate with an estimate", &concurrency.RateExceededError{Rate: concurrency.Rate{PerSecond: 5, Burst: 1}, RetryAfter: 20 * time.Second}, 503, CodeRateExceeded, capacity, "", 20, 26, false},
		{"another rate is stored", &concurrency.RateMismatchError{}, 500, CodeInternal, "", "", 0, 0, true},
		{"another error of etcd's", errors.New("out of space"), 503, CodeUnavailable, "", "", 1, 2, true},
	} {
		var reported []error
		o := Options{ReportError: func(_ *http.Request, err error) { reported = append(reported, err) }}
		w := httptest.NewRecorder()
		w.Header().Set("Content-Encoding", "gzip") // of a middleware in front, which encodes what is written
		w.Header().Set("Trailer", "Server-Timing")
		stubbed(t, o, refusing(c.err), func(http.ResponseWriter, *http.Request) {
			t.Error("the handler ran: " + c.name)
		}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, c.status, w.Code, c.name)
		require.Equal(t, []string{"gzip", "Server-Timing"}, []string{w.Header().Get("Content-Encoding"), w.Header().Get("Trailer")}, c.name)
		var p Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, c.code, p.Code, c.name)
		require.Equal(t, c.status, p.Status, c.name)
		require.Equal(t, c.kind, p.Type, c.name)
		require.NotEmpty(t, p.Title)
		require.NotContains(t, p.Detail, "may have taken effect", c.name)
		require.Equal(t, c.kind != "", len(p.ViolatedPolicies) == 1, c.name)
		require.Equal(t, c.policy, w.Header().Get("RateLimit-Policy"), c.name)
		require.Equal(t, c.policy != "", w.Header().Get("RateLimit") == `"concurrency";r=0`, c.name)
		if after := w.Header().Get("Retry-After"); c.least == 0 {
			require.Empty(t, after, c.name)
		} else {
			seconds, err := strconv.Atoi(after)
			require.NoError(t, err, c.name)
			require.GreaterOrEqual(t, seconds, c.least, c.name)
			require.LessOrEqual(t, seconds, c.most, c.name)
		}
		require.Equal(t, c.reports, len(reported) == 1, c.name)
	}
	for code, p := range problems {
		require.NotEmpty(t, p.Title, code)
	}
}

// TestLostAfterTheHandler: a permit that was lost while the handler ran is a 500, unless the
// response has begun.
func TestLostAfterTheHandler(t *testing.T) {
	t.Parallel()
	lost := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return errors.Join(fn(ctx, nil), &concurrency.LostError{Cause: concurrency.ErrLost})
	}
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want int
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, 500},
		"only 1xx":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }, 500},
		"a status":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }, 201},
		"a body":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, 200},
		"a string":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, 200},
		"a flush":         {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200},
		"a file": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("x"))
		}, 200},
		"an empty file": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("")) }, 500},
	} {
		reported := 0
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		stubbed(t, Options{ReportError: func(*http.Request, error) { reported++ }}, lost, c.h).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, c.want, w.Code, name)
		require.Equal(t, 1, reported, name)
		require.Equal(t, c.want == 500, strings.Contains(w.Body.String(), "It may have taken effect."), name)
	}
	w := httptest.NewRecorder()
	flush := func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }
	without := struct{ http.ResponseWriter }{w} // http.Flusher, as behind http.TimeoutHandler
	stubbed(t, Options{}, lost, flush).ServeHTTP(without, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, 500, w.Code, "a flush that is not supported is no beginning")
}

// recorder keeps a status 1xx from becoming the response, as a server does.
type recorder struct{ *httptest.ResponseRecorder }

// ReadFrom has the response begin, as that of chi does.
func (w *recorder) ReadFrom(r io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	return io.Copy(w.ResponseRecorder, r)
}

func (w *recorder) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

// TestNewRefusesBadOptions: each wrong option is named when the middleware is made.
func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	key := func(*http.Request) (string, bool) { return "k", true }
	rate, each := new(concurrency.RateLimiter), func(*http.Request) []concurrency.AcquireOption { return nil }
	for want, o := range map[string]Options{
		"Options.Key is nil":                                    {},
		"Options.Wait -1s is not between":                       {Key: key, Wait: -time.Second},
		"Options.Patience -1s is not between":                   {Key: key, Patience: -time.Second},
		"Options.MaxWaiters 3 without Options.Wait":             {Key: key, MaxWaiters: 3},
		"Options.Outage 7 is neither Closed nor Open nor Share": {Key: key, Outage: 7},
		"Options.Buffer -2 is not between":                      {Key: key, Buffer: -2},
		"Options.Policy has characters":                         {Key: key, Policy: "a\"b"},
	} {
		_, err := Middleware(&stub{}, o)
		require.ErrorIs(t, err, concurrency.ErrInvalid, want)
		require.ErrorContains(t, err, "limithttp: new middleware: "+want)
		_, err = Transport(&stub{}, o, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, want)
		require.ErrorContains(t, err, "limithttp: new transport: "+want)
	}
	for want, o := range map[string]Options{
		"Options.MaxWaiters 3 without a limiter":     {Rate: rate, Wait: 1, MaxWaiters: 3},
		"Options.Each without a limiter":             {Rate: rate, Each: each},
		"Options.Outage Share with Options.Rate":     {Rate: rate, Outage: Share},
		"the limiter is nil, and so is Options.Rate": {},
	} {
		_, err := Middleware(nil, o)
		require.ErrorIs(t, err, concurrency.ErrInvalid, want)
		require.ErrorContains(t, err, "limithttp: new middleware: "+want)
		_, err = Transport(nil, o, nil)
		require.ErrorContains(t, err, "limithttp: new transport: "+want)
	}
	_, err := Middleware((*stub)(nil), Options{Rate: rate})
	require.ErrorContains(t, err, "limithttp: new middleware: the limiter is nil", "it was forgotten, rather than left out")
	_, err = Middleware(nil, Options{Key: key})
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.ErrorContains(t, err, "limithttp: new middleware: the limiter is nil")
}

// TestUnsupportedHijack: a server that cannot hijack says so.
func TestUnsupportedHijack(t *testing.T) {
	t.Parallel()
	grant := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	w := httptest.NewRecorder()
	stubbed(t, Options{}, grant, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.Equal(t, net.Conn(nil), conn)
		w.WriteHeader(http.StatusTeapot)
	}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusTeapot, w.Code)
}
