package idemhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Methods are guarded however they are written; a text that is no method is refused when the
// program starts, since it would guard nothing.
func TestMethodsAsWritten(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(&idemhttp.Options{Methods: []string{"post"}}, paid)
	require.False(t, s.post("/", "k", "body").replayed())
	require.True(t, s.post("/", "k", "body").replayed())
	require.Equal(t, idemhttp.CodeMissing, s.post("/", "", "body").problem(t).Code)

	for _, bad := range []string{"", "POST,PATCH", " POST", "POST /pay"} {
		o := &idemhttp.Options{Methods: []string{http.MethodPost, bad}}
		_, err := idemhttp.Middleware(in.Store, o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, bad)
		_, err = idemhttp.PolicyHandler(in.Store, o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, bad)
	}
}

// ByPattern where no http.ServeMux has matched would be one operation for all routes: with a
// payload of the body alone, a refund would get the response of a payment.
func TestPatternWithoutServeMux(t *testing.T) {
	t.Parallel()
	f := shared(t)
	reported := make(chan error, 10)
	s := f.instance(nil, nil).serve(&idemhttp.Options{
		Op:          idemhttp.ByPattern,
		Payload:     func(_ *http.Request, body []byte) (any, error) { return body, nil },
		ReportError: func(_ *http.Request, err error) { reported <- err },
	}, paid)
	for _, path := range []string{"/payments", "/refunds"} {
		require.Equal(t, idemhttp.CodeInternal, s.post(path, "k", "body").problem(t).Code)
		err := got(t, reported, "an error")
		require.ErrorContains(t, err, "ByPattern")
		require.ErrorContains(t, err, "http.ServeMux")
	}
	require.Zero(t, s.calls.Load())
}
