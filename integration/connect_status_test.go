package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// A581: a call that is answered by a status of HTTP without a code, such as the 415 of a former release that does not have
// a codec, has the end of the code that its client reads: 400, 409, 413 and 415 were recorded as final, although the client
// reads INTERNAL or UNKNOWN, and so was a page with status 200.
func TestCallsAnsweredByPlainHTTP(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	var calls, seen atomic.Int64
	once := middleware(t, stores(t)[0], &idemhttp.Options{OnStatus: func(status int) idempotency.Action {
		seen.Store(int64(status))
		return idempotency.DefaultAction
	}})
	web := httptest.NewUnstartedServer(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		status, err := strconv.Atoi(r.Header.Get("Status"))
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Kind"))
		w.WriteHeader(status)
		if status != http.StatusNoContent && status != http.StatusNotModified {
			_, _ = w.Write([]byte("{}"))
		}
	})))
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	s := &connectServer{Server: web, t: t}
	statuses := []int{200, 201, 202, 204, 300, 304, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 499}
	for status := 400; status <= 417; status++ {
		statuses = append(statuses, status)
	}
	for status := 500; status <= 511; status++ {
		statuses = append(statuses, status)
	}
	for _, status := range statuses {
		for name, protocol := range map[string][]connect.ClientOption{"Connect": nil, "Connect, JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}} {
			for _, procedure := range []string{payUnary, payServer} {
				for _, kind := range []string{"text/html", "application/json"} {
					if kind == "application/json" && (status == 200 || status > 415) {
						continue // 200 is a message of JSON, and from here on it is as text/html
					}
					what := fmt.Sprint(status, name, procedure, kind)
					calls.Store(0)
					var read connect.Code
					for range 2 {
						_, _, err := s.call(procedure, strconv.Quote(what), protocol, "Status", strconv.Itoa(status), "Kind", kind)
						require.Error(t, err, what)
						read = connect.CodeOf(err)
					}
					require.NotEqual(t, idempotency.Remember, idemgrpc.RememberFinal(codes.Code(read)), what)
					require.EqualValues(t, 2, calls.Load(), what)
					require.EqualValues(t, forms.Codes[read].Status, seen.Load(), "%s: %v", what, read)
				}
			}
		}
	}
}
