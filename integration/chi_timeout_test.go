package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// late are responses of a handler that has returned after its time was over.
var late = map[string]struct {
	kind, body string
	length     bool
	status     int
	panics     bool // after its response
	lost       bool // behind the Middleware
}{
	"a Content-Length":     {"text/plain", "paid", true, 201, false, false},
	"JSON":                 {"application/json", `{"paid":1}`, false, 201, false, false},
	"an error":             {"application/problem+json", `{"title":"late"}`, false, 422, false, true}, // of the timeout, maybe
	"no content":           {"", "", false, 204, false, false},
	"text":                 {"text/plain", "paid", false, 201, false, true},
	"half JSON":            {"application/json", `{"paid":`, false, 201, false, true},
	"a part of a length":   {"text/plain", "half", true, 201, false, true},
	"JSON, and then panic": {"application/json", `{"paid":1}`, false, 201, true, true},
}

// A586: behind the Middleware, chi's Timeout writes a 504 when the handler has returned late. net/http ignores that; the Middleware
// took the response for broken off, and the request executed again. It counts only if nothing shows that the response is
// whole. In front, where a timeout belongs, the response is the outcome in any case.
func TestChiTimeout(t *testing.T) {
	t.Parallel()
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		for _, behind := range []bool{false, true} {
			for name, c := range late {
				t.Run(fmt.Sprintf("%s, %d, behind %v", name, policy, behind), func(t *testing.T) {
					t.Parallel()
					var calls atomic.Int64
					r := chi.NewRouter()
					if once := under(t, policy); behind {
						r.Use(once, chimiddleware.Recoverer, chimiddleware.Timeout(time.Millisecond), timed)
					} else {
						r.Use(chimiddleware.Recoverer, chimiddleware.Timeout(500*time.Millisecond), timed, once)
					}
					r.Post("/pay", func(w http.ResponseWriter, r *http.Request) {
						calls.Add(1)
						<-r.Context().Value(timedKey{}).(context.Context).Done()
						if c.kind != "" {
							w.Header().Set("Content-Type", c.kind)
						}
						if c.length {
							w.Header().Set("Content-Length", strconv.Itoa(len("paid")*(1+strings.Count(c.body, "half"))))
						}
						w.WriteHeader(c.status)
						_, _ = io.WriteString(w, c.body)
						if c.panics {
							panic("after the response")
						}
					})
					if c.lost && (behind || c.panics || c.length) {
						lostBehind(t, r, policy, &calls)
						return
					}
					for n := range 3 {
						a := send(t, r, "/pay", "k")
						for calls.Load() == 0 { // on a slow machine, the time was over before the handler was called
							a = send(t, r, "/pay", "k")
						}
						require.Equal(t, []any{c.status, c.body, n > 0}, []any{a.status, a.body, a.replayed})
					}
					require.EqualValues(t, 1, calls.Load())
				})
			}
		}
	}
}

type timedKey struct{}

// timed keeps the context that a timeout in front ends.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), timedKey{}, r.Context())))
	})
}

// lostBehind holds that a first attempt at a request is lost.
func lostBehind(t *testing.T, h http.Handler, policy idempotency.LostPolicy, calls *atomic.Int64) {
	t.Helper()
	_, err := trySend(t, h, "/pay", "k")
	for calls.Load() == 0 {
		_, err = trySend(t, h, "/pay", "k")
	}
	again, errAgain := trySend(t, h, "/pay", "k")
	require.False(t, again.replayed)
	if policy == idempotency.Refuse {
		require.NoError(t, errAgain)
		require.Equal(t, http.StatusConflict, again.status, err)
		require.Contains(t, again.body, idemhttp.CodeUnknown)
		require.EqualValues(t, 1, calls.Load())
		return
	}
	require.EqualValues(t, 2, calls.Load())
}
