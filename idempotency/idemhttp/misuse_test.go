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

// A replay has the header of ReplayedHeader, however it is written, and the one that the handler has set for
// itself is not recorded. Names that no header can have are refused when the program starts.
func TestReplayedHeader(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	opts := &idemhttp.Options{ReplayedHeader: "x-order-replayed"}
	s := in.serve(opts, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Order-Replayed", "by the handler")
		paid(w, r)
	})
	require.Equal(t, "by the handler", s.post("/", "k", "body").Header.Get("X-Order-Replayed"))
	replay := s.post("/", "k", "body")
	require.Equal(t, []string{"true"}, replay.Header.Values("X-Order-Replayed"))
	require.False(t, replay.replayed(), "by its default name")
	_, out, err := in.Get(ctxT(t), in.Ref(idempotency.Key{Op: "POST /", ID: "k"}))
	require.NoError(t, err)
	require.NotContains(t, string(out.Value), "by the handler")

	for _, bad := range []idemhttp.Options{{ReplayedHeader: "Replayed: yes"}, {Header: "Idempotency Key"}} {
		_, err := idemhttp.Middleware(in.Store, &bad)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
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
