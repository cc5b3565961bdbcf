package idemhttp_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// V9: two equal requests for two accounts, which a header names, swapped their keys in the next attempt if it sent them
// in another order: both were charged twice. The second one is refused before it is sent. What differs each time that a request is
// sent does not count.
func TestRequestsThatDifferInHeaders(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	p := &provider{}
	rt := &idemhttp.Transport{Base: p}
	for name, c := range map[string]struct {
		one, two with
		refused  string // the name
	}{
		"an account":   {header("Stripe-Account", "acct_A"), header("Stripe-Account", "acct_B"), "stripe-account"},
		"with, and no": {header("Stripe-Account", "acct_A"), func(*http.Request) {}, "stripe-account"},
		"a token":      {header("Authorization", "Bearer A"), header("Authorization", "Bearer B"), "authorization"},
		"a user":       {func(r *http.Request) { r.SetBasicAuth("A", "") }, func(r *http.Request) { r.SetBasicAuth("B", "") }, "authorization"},
		"in the URL":   {func(r *http.Request) { r.URL.User = url.User("A") }, func(r *http.Request) { r.URL.User = url.User("B") }, "the user of the URL"},
		"a cookie":     {header("Cookie", "s=A"), header("Cookie", "s=B"), "cookie"},
		"a trace":      {header("Traceparent", "00-1"), header("Traceparent", "00-2"), ""},
		"b3":           {header("X-B3-Traceid", "1"), header("X-B3-Traceid", "2"), ""},
		"a count":      {header("X-Stainless-Retry-Count", "0"), header("X-Stainless-Retry-Count", "1"), ""},
		"its request":  {header("X-Ms-Client-Request-Id", "1"), header("X-Ms-Client-Request-Id", "2"), ""},
		"its time":     {header("X-Request-Start", "1"), header("X-Request-Start", "2"), ""},
		"compressed":   {header("Accept-Encoding", "gzip"), func(*http.Request) {}, ""},
		"the same":     {header("Stripe-Account", "acct_A"), header("Stripe-Account", "acct_A"), ""},
	} {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: strings.ReplaceAll(name, " ", "-")}, nil)
		require.NoError(t, err)
		send := func(id, path string, with ...with) error {
			ctx := a.Context()
			if id != "" {
				ctx = idemhttp.WithKey(ctx, id)
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pay.test"+path, strings.NewReader("100"))
			require.NoError(t, err)
			for _, w := range with {
				w(r)
			}
			resp, err := rt.RoundTrip(r)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			return err
		}
		p.keys = nil
		require.NoError(t, send("", "/busy", c.one))
		err = send("", "/busy", c.two)
		if c.refused == "" {
			require.NoError(t, err, name)
			require.Equal(t, p.keys[0], p.keys[1], "%s: a retry", name)
		} else {
			for _, part := range []string{"idemhttp: send POST pay.test/busy within an attempt", "only in " + c.refused, "Attempt.ChildKey", "WithKey"} {
				require.ErrorContains(t, err, part, name)
			}
			require.Len(t, p.keys, 1, name)
			require.NoError(t, send(a.ChildKey("B"), "/busy", c.two), "with a key of its own")
		}
		require.NoError(t, send("", "/charge", c.two), "another request")
		require.NoError(t, a.Release(ctxT(t)))
	}
}
