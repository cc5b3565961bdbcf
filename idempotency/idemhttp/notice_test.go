package idemhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// V23: under Refuse, an attempt whose outcome is unknown is reported when it ends: its client may not come again, and
// nothing else reports it then. Ends that leave nothing to an operator are not reported.
func TestUnknownOutcomeIsReportedWhenItEnds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for policy, expected := range map[idempotency.LostPolicy]bool{idempotency.Refuse: true, idempotency.TakeOver: false} {
		in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: policy})
		reported := make(chan error, 10)
		note := func(r *http.Request, _ []byte) string { return "order of " + r.URL.Path }
		s := in.serve(&idemhttp.Options{Note: note, ReportError: func(_ *http.Request, err error) { reported <- err }}, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/504":
				w.WriteHeader(http.StatusGatewayTimeout)
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/nothing":
				idemhttp.Decide(r.Context(), idempotency.Forget, http.StatusServiceUnavailable)
				w.WriteHeader(http.StatusServiceUnavailable)
			case "/declined":
				w.WriteHeader(http.StatusPaymentRequired)
			}
		})
		for _, path := range []string{"/504", "/panic", "/nothing", "/declined", "/done"} {
			_, _ = s.send(s.request(path, fmt.Sprint("k", policy), ""))
			if !expected || path != "/504" && path != "/panic" {
				require.Empty(t, reported, path)
				continue
			}
			err := got(t, reported, "a report")
			var unknown *idempotency.UnknownError
			require.ErrorAs(t, err, &unknown, path)
			require.Equal(t, "order of "+path, unknown.Note)
			if path == "/504" {
				require.ErrorContains(t, err, "answered 504")
			}
			r, _, err := in.Get(ctxT(t), unknown.Ref)
			require.NoError(t, err)
			require.Equal(t, idempotency.Unknown, r.State)
		}
	}
}

// failing is a Codec whose key service is away.
type failing struct{}

func (failing) Name() string                       { return "kms" }
func (failing) Encode(_, _ []byte) ([]byte, error) { return nil, errors.New("the key service is away") }
func (failing) Decode(b, _ []byte) ([]byte, error) { return b, nil }

// V22: a response that is not kept, since its Codec has failed, is reported when it is recorded.
func TestResponseThatIsNotKeptIsReported(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, Codec: failing{}})
	reported := make(chan error, 10)
	s := in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported <- err }}, paid)
	require.Equal(t, http.StatusCreated, s.post("/pay", "k", "").StatusCode)
	err := got(t, reported, "a report")
	require.ErrorContains(t, err, "the key service is away")
	require.ErrorContains(t, err, "not kept")
	require.Equal(t, idemhttp.CodeNotKept, s.post("/pay", "k", "").problem(t).Code)
	require.Empty(t, reported)

	// A390: of a final no it was said that the request was done.
	s = in.serve(nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	require.Equal(t, http.StatusNotFound, s.post("/refund", "k", "").StatusCode)
	require.Equal(t, idemhttp.CodeFailed, s.post("/refund", "k", "").problem(t).Code)
}
