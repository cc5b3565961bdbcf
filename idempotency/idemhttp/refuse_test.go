package idemhttp_test

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// recovered is what frameworks do with panics.
func recovered(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		h(w, r)
	}
}

// Q2: under Refuse a handler that has charged runs once, also if a recoverer behind the
// Middleware has made a 500 of its panic, if the status looks like a refusal before the work, and if it
// has said too early that nothing was done. What it attached is not written.
func TestRefuseBehindARecoverer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	forget := func(r *http.Request) { idemhttp.Decide(r.Context(), idempotency.Forget) }
	for name, h := range map[string]http.HandlerFunc{
		"a panic":            func(http.ResponseWriter, *http.Request) { panic("after the charge") },
		"a provider's 429":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
		"a provider's 401":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"a timeout":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(504) },
		"a client's end":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(499) },
		"too early, a panic": func(_ http.ResponseWriter, r *http.Request) { forget(r); panic("after the charge") },
		"too early, a 503":   func(w http.ResponseWriter, r *http.Request) { forget(r); w.WriteHeader(503) },
		"too early, a 429":   func(w http.ResponseWriter, r *http.Request) { forget(r); w.WriteHeader(429) },
		"too early, a 408":   func(w http.ResponseWriter, r *http.Request) { forget(r); w.WriteHeader(408) },
		"for another status": func(w http.ResponseWriter, r *http.Request) {
			idemhttp.Decide(r.Context(), idempotency.Forget, 503)
			panic("after the charge")
		},
		"half a body, without a length": func(w http.ResponseWriter, r *http.Request) {
			forget(r)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "half ")
			panic("after the charge")
		},
		"half a body, as 201": func(w http.ResponseWriter, r *http.Request) { forget(r); half(w); panic("after the charge") },
	} {
		for _, on := range []func(int) idempotency.Action{nil, func(int) idempotency.Action { return idempotency.Forget }} {
			own := f.Root + "own"
			s := in.serve(&idemhttp.Options{OnStatus: on}, recovered(func(w http.ResponseWriter, r *http.Request) {
				a, _ := idempotency.FromContext(r.Context())
				a.Attach(nil, clientv3.OpPut(own, "written"))
				h(w, r)
			}))
			path := "/" + rand.Text()
			_, _ = s.send(s.request(path, "k", "body"))
			require.Equal(t, idemhttp.CodeUnknown, s.post(path, "k", "body").problem(t).Code, name)
			require.EqualValues(t, 1, s.calls.Load(), name)
			resp, err := in.client.Get(ctxT(t), own)
			require.NoError(t, err)
			require.Empty(t, resp.Kvs, name)
		}
	}
}

// A client sees no success if a recoverer has written 500 on top of it: it gets the 500, or a response
// that breaks off.
func TestFailureOnTopOfASuccess(t *testing.T) {
	t.Parallel()
	s := shared(t).instance(nil, nil).serve(nil, recovered(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "half ")
		switch r.URL.Path {
		case "/streamed":
			w.(http.Flusher).Flush()
		case "/decided":
			idemhttp.Decide(r.Context(), idempotency.Remember)
		case "/decided-of-201":
			idemhttp.Decide(r.Context(), idempotency.Remember, http.StatusCreated)
		case "/decided-of-500":
			idemhttp.Decide(r.Context(), idempotency.Remember, http.StatusInternalServerError)
		}
		panic("after the charge")
	}))
	require.Equal(t, http.StatusInternalServerError, s.post("/", "k", "").StatusCode)
	_, err := s.send(s.request("/streamed", "k", ""))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	for _, path := range []string{"/decided", "/decided-of-201", "/decided-of-500"} {
		for n := range 2 {
			re := s.post(path, "k", "")
			require.Equal(t, n > 0, re.replayed(), path)
			require.Equal(t, []any{500, "", ""}, []any{re.StatusCode, re.Header.Get("Idempotency-Body-Omitted"), re.body}, path)
		}
	}
}

// half writes half a body of a success.
func half(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "10")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "half ")
}

// Q1: the documented path of a payment: the provider's answer times out, the handler answers 504, and the
// client sends the request again.
func TestChargeThatTimesOut(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	charged := 0
	reported := make(chan error, 10)
	s := in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported <- err }}, func(w http.ResponseWriter, _ *http.Request) {
		charged++
		http.Error(w, "the provider did not answer in time", http.StatusGatewayTimeout)
	})
	re := s.post("/pay", "k", "body")
	require.Equal(t, http.StatusGatewayTimeout, re.StatusCode)
	require.Contains(t, re.body, "did not answer in time")
	p := s.post("/pay", "k", "body").problem(t)
	require.Equal(t, idemhttp.CodeUnknown, p.Code)
	require.Equal(t, 1, charged)
	var unknown *idempotency.UnknownError
	require.ErrorAs(t, got(t, reported, "an error"), &unknown)
	require.Equal(t, p.Ref, unknown.Ref)

	// The operator's word ends it.
	done := idemhttp.Response{Status: http.StatusCreated, Header: http.Header{"Location": {"/charges/7"}}, Body: []byte("charged")}
	require.NoError(t, in.Resolve(ctxT(t), unknown.Ref, idempotency.WasDone(done.Encode())))
	require.Equal(t, "charged", s.post("/pay", "k", "body").body)
	require.Equal(t, 1, charged)
}

// V1: Decide with a status counts for that status alone. A Forget without one does not count for a status of 400 or
// above, such as a provider's 402 or 429 that is passed on after the charge: it was said before the charge, and
// released the request.
func TestDecideForAStatus(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	decide := func(what idempotency.Action, statuses ...int) func(context.Context, func(int), int) {
		return func(ctx context.Context, answer func(int), status int) {
			idemhttp.Decide(ctx, what, statuses...)
			answer(status)
		}
	}
	for _, c := range []struct {
		name   string
		do     func(ctx context.Context, answer func(int), status int)
		status int
		again  bool
	}{
		{"named", decide(idempotency.Forget, 500, 503), 503, true},
		{"another named", decide(idempotency.Forget, 500, 502), 503, false},
		{"not named, a refusal before the work", decide(idempotency.Forget), 429, false},
		{"not named, a final one", decide(idempotency.Forget), 402, false},
		{"not named, a conflict", decide(idempotency.Forget), 409, false},
		{"named, below 500", decide(idempotency.Forget, 429), 429, true},
		{"not named, a success", decide(idempotency.Forget), 200, true},
		{"a success named, and sent", decide(idempotency.Forget, 200), 200, true},
		{"a success named, and another sent", decide(idempotency.Forget, 200), 201, false},
		{"after the status", func(ctx context.Context, answer func(int), status int) {
			answer(status)
			idemhttp.Decide(ctx, idempotency.Forget)
		}, 503, false},
		{"said twice", func(ctx context.Context, answer func(int), status int) {
			idemhttp.Decide(ctx, idempotency.Forget, 503)
			idemhttp.Decide(ctx, idempotency.DefaultAction)
			answer(status)
		}, 503, false},
	} {
		s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) { c.do(r.Context(), w.WriteHeader, c.status) })
		path := "/" + rand.Text()
		s.post(path, "k", "")
		s.post(path, "k", "")
		require.Equal(t, c.again, s.calls.Load() == 2, c.name)
	}
}

// An attempt that fails with TakeOver is released, and what OnStatus says counts.
func TestTakeOverForgets(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	for _, status := range []int{401, 408, 423, 429, 449, 499, 500, 503} {
		s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
			if a, _ := idempotency.FromContext(r.Context()); a.Attempt() == 1 {
				w.WriteHeader(status)
			}
		})
		path := "/" + rand.Text()
		require.Equal(t, status, s.post(path, "k", "").StatusCode)
		require.Equal(t, 200, s.post(path, "k", "").StatusCode, status)
		_, err := s.send(s.request(path, "k", "another body"))
		require.NoError(t, err)
		require.True(t, s.post(path, "k", "").replayed())
	}
}

// Behind a Middleware of another store, a Middleware claims the key in its own: its policy holds.
func TestTwoStores(t *testing.T) {
	t.Parallel()
	outer := shared(t).instance(nil, nil)
	for name, calls := range map[string]int64{"store": 2, "payments": 1} {
		st, err := idempotency.NewStore(outer.sess, name, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
		require.NoError(t, err)
		inner, err := idemhttp.Middleware(st, nil)
		require.NoError(t, err)
		var n atomic.Int64
		s := outer.hosting(&n, outer.middleware(nil)(inner(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			w.WriteHeader(http.StatusGatewayTimeout)
		}))))
		require.Equal(t, http.StatusGatewayTimeout, s.post("/"+name, name, "").StatusCode)
		s.post("/"+name, name, "")
		require.Equal(t, calls, s.calls.Load(), name)
	}
}
