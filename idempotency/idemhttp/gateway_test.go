package idemhttp_test

import (
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// D23: a gateway with a Middleware of its own, in front of a service with one, and one key for both. That an outcome is
// unknown in the service is not the outcome in the gateway: it was recorded there, and replayed for Retain, also after an
// operator had resolved the request. Whatever the policy of the gateway, the service's handler runs once.
func TestUnknownBehindAGateway(t *testing.T) {
	t.Parallel()
	f := shared(t)
	service := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	inner := service.serve(nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) })
	to, err := url.Parse(inner.URL)
	require.NoError(t, err)
	gateway := func(name string, policy idempotency.LostPolicy) (*idempotency.Store, server) {
		st, err := idempotency.NewStore(service.sess, name, &idempotency.Options{SingleTenant: true, OnLost: policy, CacheBytes: -1})
		require.NoError(t, err)
		mw, err := idemhttp.Middleware(st, nil)
		require.NoError(t, err)
		return st, service.hosting(new(atomic.Int64), mw(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		}}))
	}
	done := idemhttp.Response{Status: http.StatusCreated, Body: []byte("paid")}
	unresolved := func(s server, key string) idempotency.Ref {
		re := s.post("/pay", key, "")
		p := re.problem(t)
		require.Equal(t, idemhttp.CodeUnknown, p.Code)
		require.Equal(t, "unknown", re.Header.Get("Idempotency-Outcome"))
		require.False(t, re.replayed())
		return p.Ref
	}
	_, takesOver := gateway("takes-over", idempotency.TakeOver)
	refusing, refuses := gateway("refuses", idempotency.Refuse)
	for key, s := range map[string]server{"a": takesOver, "b": refuses} {
		require.Equal(t, http.StatusGatewayTimeout, inner.post("/pay", key, "", header("Host", s.URL)).StatusCode)
		ref := unresolved(s, key)
		outer := unresolved(s, key)
		require.NoError(t, service.Resolve(ctxT(t), ref, idempotency.WasDone(done.Encode())))
		if key == "b" {
			unresolved(s, key)
			r, _, err := refusing.Get(ctxT(t), outer)
			require.NoError(t, err)
			require.Equal(t, idempotency.Unknown, r.State, "the gateway's own record")
			require.NoError(t, refusing.Resolve(ctxT(t), outer, idempotency.NotDone(), idempotency.EvenIfAlive()))
		}
		for range 2 {
			re := s.post("/pay", key, "")
			require.Equal(t, http.StatusCreated, re.StatusCode, key)
			require.Equal(t, "paid", re.body)
		}
	}
	require.EqualValues(t, 2, inner.calls.Load(), "once for each key")
}

// A582: under Refuse a condition that is not met leaves the request as unknown in the service, whose 409 was recorded as final
// by a Middleware in front of it, and replayed after an operator had resolved the request.
func TestConflictBehindAGateway(t *testing.T) {
	t.Parallel()
	f := shared(t)
	service := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	inner := service.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/no/such/key"), ">", 0)})
		w.WriteHeader(http.StatusCreated)
	})
	to, err := url.Parse(inner.URL)
	require.NoError(t, err)
	front, err := idempotency.NewStore(service.sess, "front", &idempotency.Options{SingleTenant: true, CacheBytes: -1})
	require.NoError(t, err)
	mw, err := idemhttp.Middleware(front, nil)
	require.NoError(t, err)
	gateway := service.hosting(new(atomic.Int64), mw(httputil.NewSingleHostReverseProxy(to)))
	var ref idempotency.Ref
	for _, want := range []idemhttp.Code{idemhttp.CodeConflict, idemhttp.CodeUnknown, idemhttp.CodeUnknown} {
		re := gateway.post("/pay", "k", "")
		p := re.problem(t)
		require.Equal(t, want, p.Code)
		require.Equal(t, "unknown", re.Header.Get("Idempotency-Outcome"))
		require.False(t, re.replayed())
		ref = p.Ref
	}
	done := idemhttp.Response{Status: http.StatusCreated, Body: []byte("paid")}
	require.NoError(t, service.Resolve(ctxT(t), ref, idempotency.WasDone(done.Encode())))
	require.Equal(t, "paid", gateway.post("/pay", "k", "").body)
	require.EqualValues(t, 1, inner.calls.Load())
}

// A284: an OnStatus that names one status, and returns what RememberFinal returns for the others, had the gateway record
// that the service's outcome is unknown, or that its request is in progress. It changes nothing where it says what the
// status stands for.
func TestOnStatusByRememberFinal(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	answers := map[string]http.Header{"/unknown": {"Idempotency-Outcome": {"unknown"}}, "/in-progress": {"Retry-After": {"1"}}, "/conflict": {}}
	for name, on := range map[string]func(int) idempotency.Action{
		"none": nil,
		"one status": func(status int) idempotency.Action {
			if status == http.StatusPaymentRequired {
				return idempotency.Forget
			}
			return idemhttp.RememberFinal(status)
		},
		"all": func(int) idempotency.Action { return idempotency.Remember },
	} {
		s := in.serve(&idemhttp.Options{OnStatus: on}, func(w http.ResponseWriter, r *http.Request) {
			maps.Copy(w.Header(), answers[r.URL.Path])
			w.WriteHeader(http.StatusConflict)
		})
		for path := range answers {
			key := strings.ReplaceAll(name, " ", "")
			require.Equal(t, http.StatusConflict, s.post(path, key, "").StatusCode)
			require.Equal(t, path == "/conflict", s.post(path, key, "").replayed(), "%s, OnStatus %s", path, name)
		}
	}
}
