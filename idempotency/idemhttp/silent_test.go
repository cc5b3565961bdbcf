package idemhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A handler that returns without a response because its context has ended has not succeeded (A229 in
// internal/proof/tested-failures.md): an empty 200 was recorded for it, and every duplicate got that. A handler that does
// not look at its client's context has succeeded, also if the client has left.
func TestSilentAfterTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle   func(_ http.ResponseWriter, r *http.Request, leave, lose func())
		recorded bool
	}{
		"MaxExecution has passed": {func(_ http.ResponseWriter, r *http.Request, _, _ func()) { <-r.Context().Done() }, false},
		"the session is lost":     {func(_ http.ResponseWriter, r *http.Request, _, lose func()) { lose(); <-r.Context().Done() }, false},
		"the client has left": {func(_ http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			leave()
			<-client.Done()
		}, false},
		"the client has left, which it does not ask": {func(_ http.ResponseWriter, _ *http.Request, leave, _ func()) { leave() }, true},
		"its own word counts": {func(_ http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			idemhttp.Decide(r.Context(), idempotency.Remember)
			leave()
			<-client.Done()
		}, true},
		"the client has left, as CloseNotify says": {func(w http.ResponseWriter, _ *http.Request, leave, _ func()) {
			gone := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
			leave()
			<-gone
		}, false},
		"it has settled its attempt": {func(_ http.ResponseWriter, r *http.Request, _, _ func()) {
			client := idemhttp.Client(r.Context())
			a, _ := idempotency.FromContext(r.Context())
			assert.NoError(t, a.Commit(r.Context(), (&idemhttp.Response{Status: http.StatusOK}).Encode()))
			<-client.Done()
		}, true},
		"it has done all before": {func(_ http.ResponseWriter, r *http.Request, _, _ func()) { _ = idemhttp.Client(r.Context()) }, true},
	} {
		for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				opts := &idempotency.Options{SingleTenant: true, OnLost: policy}
				if name == "MaxExecution has passed" {
					opts.MaxExecution = 50 * time.Millisecond
				}
				in := f.instance(nil, opts)
				lose := func() { require.NoError(t, f.ExpireLease(ctxT(t), in.sess.Lease())) }
				var runs atomic.Int64
				send := func(handle func(http.ResponseWriter, *http.Request, func(), func())) *httptest.ResponseRecorder {
					ctx, leave := context.WithCancel(ctxT(t))
					defer leave()
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
					r.Header.Set("Idempotency-Key", "k")
					w := httptest.NewRecorder()
					in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if runs.Add(1) == 1 {
							handle(w, r, leave, lose)
							return
						}
						paid(w, r)
					})).ServeHTTP(w, r)
					return w
				}
				first := send(c.handle)
				if c.recorded {
					require.Equal(t, http.StatusOK, first.Code)
					require.Equal(t, http.StatusOK, send(nil).Code)
					require.EqualValues(t, 1, runs.Load())
					return
				}
				require.Equal(t, http.StatusConflict, first.Code)
				var again *httptest.ResponseRecorder
				require.Eventually(t, func() bool {
					again = send(nil)
					return again.Code == http.StatusCreated || strings.Contains(again.Body.String(), string(idemhttp.CodeUnknown))
				}, soon, 10*time.Millisecond)
				require.Equal(t, policy == idempotency.Refuse, again.Code == http.StatusConflict)
			})
		}
	}
}
