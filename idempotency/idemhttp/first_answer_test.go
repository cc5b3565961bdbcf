package idemhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A622: the first answer of a request whose outcome is unknown from then on says so, and no time to come back: a repetition
// is not executed. A gateway in front does not record it.
func TestFirstAnswerSaysThatItIsUnknown(t *testing.T) {
	t.Parallel()
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: onLost})
		sem, err := concurrency.NewSemaphore(in.sess, "charge", 1, nil)
		require.NoError(t, err)
		taken, err := sem.Acquire(ctxT(t))
		require.NoError(t, err)
		s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
			if _, err := sem.Acquire(r.Context(), concurrency.Wait(0)); err == nil {
				t.Error("the limit is not full")
			}
			switch r.URL.Path {
			case "/said":
				idemhttp.Decide(r.Context(), idempotency.Forget, http.StatusServiceUnavailable)
			case "/abandoned":
				idemhttp.Decide(r.Context(), idempotency.Abandon)
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		for path, silent := range map[string]bool{"/silent": true, "/said": false, "/abandoned": true} {
			unknown := silent && onLost == idempotency.Refuse
			re := s.post(path, "k", "body")
			require.Equal(t, http.StatusServiceUnavailable, re.StatusCode)
			require.Equal(t, unknown, re.Header.Get("Idempotency-Outcome") == "unknown", policy+path)
			require.Equal(t, unknown, re.Header.Get("Retry-After") == "", policy+path)
		}
		require.NoError(t, taken.Release(ctxT(t)))
	}
}
