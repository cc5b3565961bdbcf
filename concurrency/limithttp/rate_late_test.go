package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// lateContext lets some time pass while a deadline below it is set.
type lateContext struct {
	context.Context
	pass time.Duration
}

func (c lateContext) Deadline() (time.Time, bool) {
	time.Sleep(c.pass)
	return time.Time{}, false
}

// TestRateWaitEndsAtItsBegin: if Wait ends at the moment at which a request would begin to wait for a
// token, the request has exceeded the rate, as any other without a token.
func TestRateWaitEndsAtItsBegin(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes two seconds, in which a process may stand still")
	}
	const w = 1500 * time.Millisecond // the request has to come to its deadline within it
	in := newInstance(t, 1)
	reported := make(reports, 10)
	mw := middleware(t, nil, options(rated(in.rate(scarce)), wait(w), reported.option))
	h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it ran") }))
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(lateContext{ctxT(t), w + time.Millisecond})
	r.Header.Set("Tenant", "acme")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Contains(t, answer.Body.String(), `"`+string(limithttp.CodeRateExceeded)+`"`)
	require.Empty(t, reported)
}
