package idemhttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A timeout that answers before the handler has returned belongs in front of the Middleware: there
// the handler continues alone, and its outcome is replayed.
func TestTimeoutHandlerInFront(t *testing.T) {
	t.Parallel()
	in, b := shared(t).instance(nil, nil), newBlocking(t)
	s := in.hosting(nil, http.TimeoutHandler(in.middleware(nil)(b), 100*time.Millisecond, "slow"))
	require.Equal(t, http.StatusServiceUnavailable, s.post("/", "k", "body").StatusCode)
	require.Eventually(t, func() bool { // on a slow machine the time may be over before the handler has begun
		return len(b.begun) > 0 || s.post("/", "k", "body").StatusCode == 0
	}, soon, 5*time.Millisecond)
	for range 3 {
		require.Contains(t, []int{http.StatusConflict, http.StatusServiceUnavailable}, s.post("/", "k", "body").StatusCode)
	}
	b.release()
	require.Eventually(t, func() bool {
		re := s.post("/", "k", "body")
		return re.StatusCode == http.StatusCreated && re.replayed()
	}, soon, 5*time.Millisecond)
	require.Len(t, b.begun, 1)
}

// Behind the Middleware, the timeout's 503 releases the key while the handler continues, and a
// duplicate runs beside it: the package's comment warns of that.
func TestTimeoutHandlerBehind(t *testing.T) {
	t.Parallel()
	in, b := shared(t).instance(nil, nil), newBlocking(t)
	slow := http.TimeoutHandler(b, time.Millisecond, "slow")
	s := in.serve(nil, slow.ServeHTTP)
	for range 2 {
		require.Equal(t, http.StatusServiceUnavailable, s.post("/", "k", "body").StatusCode)
		got(t, b.begun, "the handler")
	}
}
