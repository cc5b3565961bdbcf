package idemhttp_test

import (
	"encoding/binary"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A580: the last frame of a call is there and cannot be read: its client may read a success there. It was a failure, so the
// client had the success and its duplicate executed again, under Refuse as well as after a Forget of OnStatus. No client
// gets such a response, and it is reported. A handler that knows it for whole says so.
func TestEndThatCannotBeRead(t *testing.T) {
	t.Parallel()
	body := string(binary.BigEndian.AppendUint32([]byte{0x81}, 1)) + "?" // a last frame, compressed
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		for _, how := range []string{"at once", "streamed", "remembered"} {
			t.Run(policy+", "+how, func(t *testing.T) {
				t.Parallel()
				in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: onLost})
				var reported atomic.Pointer[error]
				s := in.serve(&idemhttp.Options{
					OnStatus:    func(int) idempotency.Action { return idempotency.Forget },
					ReportError: func(_ *http.Request, err error) { reported.Store(&err) },
				}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/grpc-web+proto")
					w.Header().Set("Grpc-Encoding", "br")
					if how == "remembered" {
						idemhttp.Decide(r.Context(), idempotency.Remember)
					}
					_, _ = w.Write([]byte(body))
					if how == "streamed" {
						w.(http.Flusher).Flush()
					}
				})
				call := func() (reply, error) {
					return s.send(s.request("/shop.v1.Shop/Pay", "k", "", header("Content-Type", "application/grpc-web+proto")))
				}
				first, err := call()
				if how == "remembered" {
					require.NoError(t, err)
					again, err := call()
					require.NoError(t, err)
					require.True(t, again.replayed())
					require.Equal(t, []string{body, body}, []string{first.body, again.body})
					return
				}
				require.NotContains(t, first.body, body)
				require.Equal(t, how == "streamed", err != nil, err)
				require.ErrorContains(t, *reported.Load(), `compressed by "br", not by gzip`)
				if how == "at once" {
					code := map[idempotency.LostPolicy]string{idempotency.TakeOver: "10", idempotency.Refuse: "9"}[onLost]
					require.Contains(t, first.body, "grpc-status: "+code)
				}
				again, err := call()
				if onLost == idempotency.Refuse {
					require.NoError(t, err)
					require.Contains(t, again.body, "grpc-status: 9")
					require.Contains(t, again.body, "an operator")
					require.EqualValues(t, 1, s.calls.Load())
				} else {
					require.EqualValues(t, 2, s.calls.Load())
				}
			})
		}
	}
}
