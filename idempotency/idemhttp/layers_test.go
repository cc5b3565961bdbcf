package idemhttp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// idle counts the calls of CloseIdleConnections.
type idle struct {
	provider
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

// A593, A594: with the two Transports in either order, a redirect has the key of its request, which it lost if the limit was
// outside, and CloseIdleConnections reaches Base, which idemhttp's kept it from.
func TestTransportsInLayers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	lim, err := concurrency.NewSemaphore(in.sess, "calls", 8, nil)
	require.NoError(t, err)
	limited := func(base http.RoundTripper) http.RoundTripper {
		rt, err := limithttp.Transport(concurrency.Single(lim), limithttp.Options{Key: func(*http.Request) (string, bool) { return "all", true }}, base)
		require.NoError(t, err)
		return rt
	}
	keyed := func(base http.RoundTripper) http.RoundTripper { return &idemhttp.Transport{Base: base} }
	for name, layers := range map[string]func(http.RoundTripper) http.RoundTripper{
		"keys":               keyed,
		"keys-around-limits": func(base http.RoundTripper) http.RoundTripper { return keyed(limited(base)) },
		"limits-around-keys": func(base http.RoundTripper) http.RoundTripper { return limited(keyed(base)) },
	} {
		base := &idle{}
		c := &http.Client{Transport: layers(base)}
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: name}, nil)
		require.NoError(t, err)
		for n, ctx := range map[string]func() *http.Request{
			"within an attempt": func() *http.Request { return moved(t).WithContext(a.Context()) },
			"outside":           func() *http.Request { return moved(t) },
		} {
			base.keys = nil
			resp, err := c.Do(ctx())
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.Len(t, base.keys, 2, "%s %s", name, n)
			require.NotEmpty(t, base.keys[0])
			require.Equal(t, base.keys[0], base.keys[1], "%s %s", name, n)
		}
		require.NoError(t, a.Release(ctxT(t)))
		c.CloseIdleConnections()
		require.Equal(t, 1, base.closed, name)
	}
}

// moved is a request that is redirected.
func moved(t *testing.T) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pay.test/moved", strings.NewReader("100"))
	require.NoError(t, err)
	return r
}
