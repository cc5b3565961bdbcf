package virtual

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// longHold is how long an outgoing call holds its permit until that is reported.
const longHold = 5 * time.Minute

// failures are errors that were reported.
type failures struct {
	mu  sync.Mutex
	got []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, err)
}

func (f *failures) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// answers is a RoundTripper whose responses have a body.
type answers struct{}

func (answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("a body"))}, nil
}

// TestABodyThatIsNeverClosed: an outgoing call that holds its permit for five minutes is reported, with how many do, once
// an hour for all calls of the transport; one that has ended is not counted (A169 and A475 in
// internal/proof/tested-failures.md: once for ever, the first long download used the report up).
func TestABodyThatIsNeverClosed(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		lim, err := concurrency.NewKeyedLimiter(on[0].session, "providers", 9, nil)
		require.NoError(t, err)
		var reported failures
		send := func(rt http.RoundTripper) *http.Response {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider", nil)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(r)
			require.NoError(t, err)
			return resp
		}
		transport := func() http.RoundTripper {
			t.Helper()
			rt, err := limithttp.Transport(lim, limithttp.Options{
				Key:         func(*http.Request) (string, bool) { return "acme", true },
				ReportError: func(_ *http.Request, err error) { reported.add(err) },
			}, answers{})
			require.NoError(t, err)
			return rt
		}

		rt := transport()
		closed := send(rt)
		time.Sleep(4*time.Minute + 59*time.Second)
		require.NoError(t, closed.Body.Close())
		time.Sleep(time.Minute)
		require.Empty(t, reported.all(), "it was closed")

		leaked := []*http.Response{send(rt)}
		time.Sleep(4*time.Minute + 59*time.Second)
		require.Empty(t, reported.all())
		time.Sleep(2 * time.Second)
		require.Len(t, reported.all(), 1)
		require.ErrorContains(t, reported.all()[0], `"acme"`)
		require.ErrorContains(t, reported.all()[0], "5m0s")
		require.ErrorContains(t, reported.all()[0], "MaxHold in Options.Each")
		require.ErrorContains(t, reported.all()[0], ": 1,")
		for range 3 {
			leaked = append(leaked, send(rt))
			time.Sleep(15 * time.Minute)
			require.NoError(t, leaked[0].Body.Close())
			leaked = leaked[1:]
		}
		require.Len(t, reported.all(), 1, "once in an hour")
		time.Sleep(10 * time.Minute)
		leaked = append(leaked, send(rt))
		time.Sleep(longHold + time.Second)
		require.Len(t, reported.all(), 2)
		require.ErrorContains(t, reported.all()[1], ": 2,", "those that hold now")
		for _, resp := range leaked {
			require.NoError(t, resp.Body.Close())
		}
	})
}

// TestLongCallsThatMaxHoldEnds: a call that MaxHold has ended is not one that holds a permit.
func TestLongCallsThatMaxHoldEnds(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		lim, err := concurrency.NewKeyedLimiter(on[0].session, "providers", 1, nil)
		require.NoError(t, err)
		var reported failures
		rt, err := limithttp.Transport(lim, limithttp.Options{
			Key: func(*http.Request) (string, bool) { return "acme", true },
			Each: func(*http.Request) []concurrency.AcquireOption {
				return []concurrency.AcquireOption{concurrency.MaxHold(time.Minute)}
			},
			ReportError: func(_ *http.Request, err error) { reported.add(err) },
		}, answers{})
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider", nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(r)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Empty(t, reported.all())
		_ = resp.Body.Close()
		require.Len(t, reported.all(), 1)
		require.ErrorIs(t, reported.all()[0], concurrency.ErrTooLong)
	})
}
