package idemhttp_test

import (
	"context"
	"io"
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
// not look at its client's context has succeeded, also if the client has left. So it is with one that returns in the middle
// of a response (A448): two events of five were replayed as all of them.
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
		"the client has left a stream, before its first part": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := streaming(w, r, "")
			leave()
			<-client.Done()
		}, false},
		"the client has left a stream, after a part": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := streaming(w, r, "data: 1\n\n")
			leave()
			<-client.Done()
		}, false},
		"the client has left, after a part that is not sent": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			_, _ = io.WriteString(w, "data: 1\n\n")
			leave()
			<-client.Done()
		}, false},
		"the client has left before its response": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			leave()
			<-client.Done()
			_, _ = io.WriteString(w, "done")
		}, true},
		"the client has left before its stream": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			leave()
			<-client.Done()
			streaming(w, r, "data: 1\n\n")
		}, true},
		"the client has left before its large response": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			leave()
			<-client.Done()
			for range 2 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
			}
		}, true},
		"the client has left before its stream, which stays empty": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := idemhttp.Client(r.Context())
			leave()
			<-client.Done()
			streaming(w, r, "")
		}, false},
		"the client has left a stream, which does not ask": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			_, _ = io.WriteString(w, "data: 1\n\n")
			assert.NoError(t, http.NewResponseController(w).Flush())
			leave()
		}, true},
		"the client has left a stream, whose word counts": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			client := streaming(w, r, "data: 1\n\n")
			leave()
			<-client.Done()
			idemhttp.Decide(r.Context(), idempotency.Remember)
		}, true},
		"the client has left a whole body": {func(w http.ResponseWriter, r *http.Request, leave, _ func()) {
			w.Header().Set("Content-Length", "9")
			client := streaming(w, r, "data: 1\n\n")
			leave()
			<-client.Done()
		}, true},
		"MaxExecution has passed in a stream": {func(w http.ResponseWriter, r *http.Request, _, _ func()) {
			streaming(w, r.WithContext(context.Background()), "data: 1\n\n")
			<-r.Context().Done()
		}, false},
		"it has done all before": {func(_ http.ResponseWriter, r *http.Request, _, _ func()) { _ = idemhttp.Client(r.Context()) }, true},
	} {
		for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				opts := &idempotency.Options{SingleTenant: true, OnLost: policy}
				if strings.HasPrefix(name, "MaxExecution has passed") {
					opts.MaxExecution = 50 * time.Millisecond
				}
				in := f.instance(nil, opts)
				lose := func() { require.NoError(t, f.ExpireLease(ctxT(t), in.sess.Lease())) }
				var runs atomic.Int64
				send := func(handle func(http.ResponseWriter, *http.Request, func(), func())) (w *httptest.ResponseRecorder) {
					defer func() {
						if v := recover(); v != nil {
							require.Equal(t, http.ErrAbortHandler, v)
							w = nil
						}
					}()
					ctx, leave := context.WithCancel(ctxT(t))
					defer leave()
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
					r.Header.Set("Idempotency-Key", "k")
					w = httptest.NewRecorder()
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
				aborted := first == nil // of what was streamed
				if c.recorded {
					require.False(t, aborted)
					require.Equal(t, http.StatusOK, first.Code)
					require.Equal(t, http.StatusOK, send(nil).Code)
					require.EqualValues(t, 1, runs.Load())
					return
				}
				require.True(t, aborted || first.Code == http.StatusConflict)
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

// streaming sends the headers and a part of a stream of events, and returns the client's context.
func streaming(w http.ResponseWriter, r *http.Request, part string) context.Context {
	client := idemhttp.Client(r.Context())
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, part)
	_ = http.NewResponseController(w).Flush()
	return client
}
