package virtual

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A494: etcd has answered the first of two calls that there is no record, and does not answer its claim. The second one waits
// for the first: alone it gave up after StoreTimeout, and with FailOpen its handler ran beside the attempt of the first.
func TestNoFailOpenBehindACallThatIsAnswered(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{"before": 0, "meanwhile": 2 * time.Second} { // the answer comes
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				var claims, runs atomic.Int64
				on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					r, ok := m.Body.(*pb.TxnRequest)
					switch {
					case !ok || m.Response || !strings.Contains(r.String(), "/record/"):
					case !strings.Contains(r.String(), "request_put"):
						return etcdfake.Fault{ResponseDelay: late}
					case claims.Add(1) == 1:
						return lost
					}
					return etcdfake.Fault{}
				})
				mw, err := idemhttp.Middleware(on[0].storeOf(tenant()), &idemhttp.Options{FailOpen: true, Wait: time.Minute, StoreTimeout: 4 * time.Second})
				require.NoError(t, err)
				call := askHTTP(t, mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs.Add(1) })))
				first := make(chan reply, 1)
				go func() { first <- call("k") }()
				time.Sleep(time.Second)
				second := call("k")
				require.True(t, (<-first).done)
				require.EqualValues(t, 1, runs.Load())
				require.True(t, second.done && second.replayed)
				require.Greater(t, claims.Load(), int64(1))
			})
		})
	}
}
