package idemhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// D5: a key that the Middleware does not look at guards nothing, which its client does not know. Each
// method and header is reported once.
func TestKeysThatAreIgnored(t *testing.T) {
	t.Parallel()
	f := shared(t)
	reports := make(chan error, 100)
	s := f.instance(nil, nil).serve(&idemhttp.Options{
		Optional:    true,
		ReportError: func(_ *http.Request, err error) { reports <- err },
	}, paid)
	send := func(method, name string) {
		r := s.request("/orders/1", "", "body", header(name, "k"), func(r *http.Request) { r.Method = method })
		_, err := s.send(r)
		require.NoError(t, err)
	}
	for range 3 {
		send(http.MethodPut, "Idempotency-Key")
		send(http.MethodDelete, "X-Idempotency-Key")
		send(http.MethodPost, "X-Idempotency-Key")
	}
	require.Len(t, reports, 3)
	reported := [3]error{<-reports, <-reports, <-reports}
	require.ErrorContains(t, reported[0], "PUT /orders/1: the request has the header Idempotency-Key")
	require.ErrorContains(t, reported[0], "Options.Methods has no PUT")
	require.ErrorContains(t, reported[1], "Options.Methods has no DELETE")
	require.ErrorContains(t, reported[2], "has the header X-Idempotency-Key")
	require.ErrorContains(t, reported[2], "Options.Header is Idempotency-Key")

	// What has no effect, no key, a key that counts, and methods that a client makes up are not reported.
	for range 2 {
		send(http.MethodGet, "Idempotency-Key")
		send(http.MethodPost, "Idempotency-Key")
		send(http.MethodPut, "X-Request-Id")
		send("MADE-UP", "Idempotency-Key")
	}
	require.Empty(t, reports)
}
