package idemhttp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A582: a gateway with a Middleware of its own records no answer of the service's Middleware that changes, by itself or when
// an operator has resolved the request: a conflict under Refuse stayed for Retain. Whatever the code, the answer in JSON and
// those of the protocols of RPC are read alike.
func TestAnswersThatChangeInFront(t *testing.T) {
	t.Parallel()
	final := []Code{CodeMissing, CodeMalformed, CodeBody, CodeTooLarge, CodeReused, CodeFailed, CodeNotKept}
	c := &config{Options: Options{OnStatus: func(int) idempotency.Action { return idempotency.DefaultAction }}}
	for code := range problems {
		for _, after := range after(code) {
			for _, kind := range []string{"", "application/proto", "application/grpc", "application/grpc-web+proto", "application/connect+json"} {
				if kind != "" && code == CodeTooLarge {
					continue // RESOURCE_EXHAUSTED says that it was refused before the work
				}
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				if kind != "" {
					r.Header.Set("Content-Type", kind)
				}
				rec := record(httptest.NewRecorder(), r, 1<<20, nil)
				c.answer(rec, r, Problem{Code: code}, after)
				res := (&visit{}).decide(c, rec, rec.end(c))
				require.Equal(t, slices.Contains(final, code), res.Action == idempotency.Remember, "%s, %v, %s: %s", code, after, kind, res.Because)
				byOperator := code == CodeUnknown || code == CodeConflict && after == 0
				require.Equal(t, byOperator, saysUnknown(rec.head), "%s, %v, %s", code, after, kind)
				var p Problem
				if kind == "" && byOperator {
					require.NoError(t, json.Unmarshal(rec.body, &p))
					require.False(t, p.Retryable)
				}
			}
		}
	}
}

// after returns the values of Retry-After that an answer with the code can have.
func after(code Code) []time.Duration {
	switch code {
	case CodeInProgress, CodeScopeFull, CodeUnavailable, CodeFull:
		return []time.Duration{time.Second}
	case CodeConflict:
		return []time.Duration{0, time.Second}
	}
	return []time.Duration{0}
}
