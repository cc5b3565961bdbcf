package idemhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// ofStore matches what asks for keys of a store.
func ofStore(_ string, msg any) bool { return strings.Contains(fmt.Sprint(msg), "/idempotency/") }

// FailOpen opens for a store that cannot be reached alone: not for a request of which this call
// has seen anything before, and not for a store that answers with a refusal or is closed.
func TestFailOpenForTheUnknownAlone(t *testing.T) {
	t.Parallel()
	// Within StoreTimeout etcd has to answer what is read before it is away: otherwise the request is unknown.
	open := func(wait time.Duration) *idemhttp.Options {
		return &idemhttp.Options{FailOpen: true, Wait: wait, StoreTimeout: 5 * time.Second}
	}
	refused := func(t *testing.T, re reply, codes ...idemhttp.Code) {
		t.Helper()
		require.Contains(t, append(codes, idemhttp.CodeUnavailable), re.problem(t).Code)
		require.NotEmpty(t, re.Header.Get("Retry-After"))
	}
	// cutAfter has etcd away as soon as so many requests were answered.
	cutAfter := func(in instance, answers int) *embedtest.Injection {
		return in.client.Inject(embedtest.Fault{Do: embedtest.Pass, Match: ofStore, Skip: answers - 1, After: in.client.Cut})
	}
	// refusedAfterTheRead has a process lose etcd once it has read the record: it runs no handler.
	refusedAfterTheRead := func(t *testing.T, f fixture) {
		t.Helper()
		in := f.instance(nil, nil)
		s := in.serve(open(0), paid)
		cut := cutAfter(in, 1)
		refused(t, s.post("/", "k", "body"))
		require.Equal(t, 1, cut.Hits())
		require.Zero(t, s.calls.Load())
	}
	t.Run("perhaps in progress", func(t *testing.T) { // the record was read, and not whether its session exists
		t.Parallel()
		f := shared(t)
		h := newBlocking(t)
		defer h.release()
		f.instance(nil, nil).serve(nil, h.ServeHTTP).later("/", "k", "body")
		got(t, h.begun, "a begin")
		refusedAfterTheRead(t, f)
	})
	t.Run("in progress", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		h := newBlocking(t)
		defer h.release() // before the servers close
		first := f.instance(nil, nil).serve(nil, h.ServeHTTP).later("/", "k", "body")
		got(t, h.begun, "a begin")
		other := f.instance(testkit.Quick(), nil)
		cut := cutAfter(other, 2)
		waits, asks := other.serve(open(time.Second), paid), other.serve(open(0), paid)
		waiting := waits.later("/", "k", "body")
		require.NoError(t, cut.WaitHit(ctxT(t)))
		refused(t, asks.post("/", "k", "body"))
		// It looks again after a TTL; on a busy machine its Wait ends before that.
		refused(t, got(t, waiting, "an answer"), idemhttp.CodeInProgress)
		require.Zero(t, waits.calls.Load()+asks.calls.Load())
		h.release()
		require.Equal(t, http.StatusCreated, got(t, first, "the response").StatusCode)
	})
	t.Run("done", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		re := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 300<<10)) // in keys of its own
		}).post("/", "k", "body")
		require.Equal(t, http.StatusOK, re.StatusCode)
		refusedAfterTheRead(t, f)
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		crashed := f.instance(nil, nil).serve(nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		_, err := crashed.send(crashed.request("/", "k", "body"))
		require.Error(t, err)
		refusedAfterTheRead(t, f)
	})
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		in := shared(t).instance(nil, nil)
		s := in.serve(open(0), paid)
		denied := in.client.Inject(embedtest.Fault{Do: embedtest.FailWith, Match: ofStore, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		refused(t, s.post("/", "k", "body"))
		require.Positive(t, denied.Hits())
		require.Zero(t, s.calls.Load())
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		in := shared(t).instance(nil, nil)
		s := in.serve(open(0), paid)
		require.NoError(t, in.sess.Close(ctxT(t)))
		refused(t, s.post("/", "k", "body"))
		require.Zero(t, s.calls.Load())
	})
}
