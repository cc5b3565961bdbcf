package idemhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// hides is a server's ResponseWriter that has no optional interfaces; unwraps is one that http.ResponseController looks
// into.
type (
	hides   struct{ http.ResponseWriter }
	unwraps struct{ http.ResponseWriter }
)

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// TestOptionalInterfaces: a handler finds the optional interfaces that the server has, as http.ResponseController finds
// them, and no others (A474 in internal/proof/tested-failures.md: it was always an http.Flusher and http.Hijacker; behind
// http.TimeoutHandler a flush that sent nothing had the response count as begun).
func TestOptionalInterfaces(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	for name, c := range map[string]struct {
		front           func(http.Handler) http.Handler
		http2           bool
		flushes, hijack bool
	}{
		"HTTP/1.1": {func(h http.Handler) http.Handler { return h }, false, true, true},
		"HTTP/2":   {func(h http.Handler) http.Handler { return h }, true, true, false},
		"behind one that unwraps": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwraps{unwraps{w}}, r) })
		}, false, true, true},
		"behind one that has neither": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(hides{w}, r) })
		}, false, false, false},
		"behind http.TimeoutHandler": {func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "slow") }, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, flushes := w.(http.Flusher)
				assert.Equal(t, c.flushes, flushes)
				_, hijacks := w.(http.Hijacker)
				assert.Equal(t, c.hijack, hijacks)
				_, reads := w.(io.ReaderFrom)
				_, pushes := w.(http.Pusher)
				assert.False(t, reads || pushes)
				if err := http.NewResponseController(w).Flush(); c.flushes {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, http.ErrNotSupported)
				}
				_, _ = io.WriteString(w, "done")
			}))
			s := httptest.NewUnstartedServer(c.front(h))
			s.EnableHTTP2 = c.http2
			s.StartTLS()
			t.Cleanup(s.Close)
			for _, replayed := range []bool{false, true} {
				r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, s.URL, nil)
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", strings.ReplaceAll(name, " ", "-"))
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				b, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, "done", string(b))
				require.Equal(t, replayed, resp.Header.Get("Idempotent-Replayed") == "true")
			}
		})
	}
}

// TestRefusedAfterAFlushThatCannot: the outcome of a handler behind http.TimeoutHandler that tries to flush is refused.
// Its client has nothing yet, and gets the refusal (A474).
func TestRefusedAfterAFlushThatCannot(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	h := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/no/such/key"), ">", 0)})
		_, _ = io.WriteString(w, "half")
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}))
	re := in.hosting(nil, http.TimeoutHandler(h, time.Minute, "slow")).post("/", "k", "")
	require.Equal(t, http.StatusConflict, re.StatusCode)
	require.Equal(t, idemhttp.CodeConflict, re.problem(t).Code)
}
