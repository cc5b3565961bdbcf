package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// limited serves handlers of connect behind limithttp. The key is the header Key.
func limited(t *testing.T, lim concurrency.Limiter, onProblem func(http.ResponseWriter, *http.Request, limithttp.Problem)) *connectServer {
	t.Helper()
	mw, err := limithttp.Middleware(lim, limithttp.Options{OnProblem: onProblem, Key: func(r *http.Request) (string, bool) { return r.Header.Get("Key"), true }})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(payUnary, connect.NewUnaryHandler(payUnary, func(_ context.Context, r *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		return connect.NewResponse(r.Msg), nil
	}))
	mux.Handle(payServer, connect.NewServerStreamHandler(payServer, func(_ context.Context, r *connect.Request[structpb.Struct], out *connect.ServerStream[structpb.Struct]) error {
		return out.Send(r.Msg)
	}))
	s := httptest.NewUnstartedServer(mw(mux))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return &connectServer{Server: s, t: t}
}

// D25: limithttp answers a client of RPC with problem+json, whose status alone its protocol reads: 429 and 503 are
// unavailable, all others unknown, and neither the reason nor Retry-After is seen. An OnProblem writes an error of the
// protocol. Both are in the comment of limithttp.
func TestLimitForConnectClients(t *testing.T) {
	t.Parallel()
	sess, _ := testkit.Shared(t).Session(nil)
	lim, err := concurrency.NewKeyedLimiter(sess, "keys", 1, &concurrency.KeyedLimiterOptions{Total: 2})
	require.NoError(t, err)
	for _, key := range []string{"ada", "bob"} {
		_, err = lim.Key(key).Acquire(ctxT(t))
		require.NoError(t, err)
	}
	plain := limited(t, lim, nil)
	errors := connect.NewErrorWriter()
	says := limited(t, lim, func(w http.ResponseWriter, r *http.Request, p limithttp.Problem) {
		code := map[limithttp.Code]connect.Code{limithttp.CodeKeyFull: connect.CodeResourceExhausted, limithttp.CodeTotalFull: connect.CodeUnavailable}[p.Code]
		if code == 0 {
			code = connect.CodeInternal
		}
		failed := connect.NewError(code, nil)
		failed.Meta().Set("Retry-After", w.Header().Get("Retry-After"))
		_ = errors.Write(w, r, failed)
	})
	for key, c := range map[string]struct {
		code, own connect.Code
		status    string
		later     bool
	}{
		"ada": {connect.CodeUnavailable, connect.CodeResourceExhausted, "429", true},
		"eve": {connect.CodeUnavailable, connect.CodeUnavailable, "503", true},
		"":    {connect.CodeUnknown, connect.CodeInternal, "500", false}, // a key that is wrong
	} {
		for name, dialect := range dialects {
			for _, procedure := range []string{payUnary, payServer} {
				what := strings.Join([]string{key, name, procedure}, " ")
				var e *connect.Error
				_, _, err := plain.call(procedure, "", dialect, "Key", key)
				require.ErrorAs(t, err, &e, what)
				require.Equal(t, c.code, e.Code(), what)
				require.Contains(t, e.Message(), c.status, what)
				require.Empty(t, e.Details(), what)
				require.Empty(t, e.Meta().Get("Retry-After"), what)

				_, _, err = says.call(procedure, "", dialect, "Key", key)
				require.ErrorAs(t, err, &e, what)
				require.Equal(t, c.own, e.Code(), what)
				require.Equal(t, c.later, e.Meta().Get("Retry-After") != "", what)
			}
		}
	}
}
