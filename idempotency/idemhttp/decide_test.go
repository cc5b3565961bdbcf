package idemhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A446, A447, A448: what follows a 201 with a part of its body, by all that can come together: a status of 5xx on top, the
// handler's word, the end of the client that it has asked for, a flush, and a Content-Length.
func TestWhatFollowsAResponse(t *testing.T) {
	t.Parallel()
	for n := range 4 << 4 {
		second, left, flushed, whole := n&1 != 0, n&2 != 0, n&4 != 0, n&8 != 0
		word := []idempotency.Action{idempotency.DefaultAction, idempotency.Remember, idempotency.Forget, idempotency.Abandon}[n>>4]
		name := fmt.Sprintf("second %v, left %v, flushed %v, whole %v, word %v", second, left, flushed, whole, word)
		v := &visit{}
		c := &config{Options: Options{OnStatus: func(int) idempotency.Action { return idempotency.DefaultAction }}}
		rec := record(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), 1<<10, nil)
		Decide(context.WithValue(t.Context(), visitKey{}, v), word)
		if whole {
			rec.Header().Set("Content-Length", "4")
		}
		rec.WriteHeader(http.StatusCreated)
		_, _ = rec.Write([]byte("part"))
		if flushed {
			require.NoError(t, rec.flush())
		}
		if second {
			rec.WriteHeader(http.StatusInternalServerError)
			_, _ = rec.Write([]byte("boom"))
		}
		response := rec.end(c)
		rec.stopped = rec.stops(contexts{client: left})
		res := v.decide(c, rec, response)

		sure := whole || !second && !left // that the handler has written all of it
		fails := second && !(whole && word == idempotency.Remember)
		replaced := fails && !flushed && word == idempotency.Remember // by the 500
		require.Equal(t, fails && !replaced, rec.fell(), name)
		require.Equal(t, word == idempotency.Remember || word == idempotency.DefaultAction && sure && !fails, res.Action == idempotency.Remember, name)
		is := []any{http.StatusCreated, "part", second && !whole}
		if replaced {
			is = []any{http.StatusInternalServerError, "boom", false}
		}
		require.Equal(t, is, []any{response.Status, string(response.Body), response.Omitted}, name)
		sent := !fails && !res.Withhold // as a whole success
		require.Equal(t, res.Action == idempotency.Remember && !fails || res.Action == idempotency.Forget && res.Own && !fails, sent, name)
		require.Equal(t, word == idempotency.Forget && sure && !fails, res.Action == idempotency.Forget, name)
		if sent {
			require.False(t, res.Failed, "what was attached is written: "+name)
		}
	}
}
