package idemhttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A scope with too many records gets 429, FailOpen or not; its repetitions and other scopes do not.
func TestScopeFull(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{MaxPerScope: 1, Retain: time.Minute})
	reported := make(chan error, 10)
	s := in.serve(&idemhttp.Options{
		FailOpen: true, Scope: func(r *http.Request) string { return r.Header.Get("X-Tenant") }, ReportError: func(_ *http.Request, err error) { reported <- err },
	}, paid)
	one, two := header("X-Tenant", "one"), header("X-Tenant", "two")
	require.Equal(t, http.StatusCreated, s.post("/", "k1", "body", one).StatusCode)
	re := s.post("/", "k2", "body", one)
	p := re.problem(t)
	require.Equal(t, idemhttp.CodeScopeFull, p.Code)
	require.Equal(t, http.StatusTooManyRequests, p.Status)
	require.True(t, p.Retryable)
	require.Equal(t, "60", re.Header.Get("Retry-After"))
	require.ErrorIs(t, got(t, reported, "the refusal"), idempotency.ErrScopeFull)
	require.True(t, s.post("/", "k1", "body", one).replayed())
	require.Equal(t, http.StatusCreated, s.post("/", "k2", "body", two).StatusCode)
	require.EqualValues(t, 2, s.calls.Load())
}
