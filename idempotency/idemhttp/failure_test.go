package idemhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// I22: if the client hangs up, the handler continues, with a context that has not ended, and its
// response is recorded.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"silently", "writing", "flushing"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			begun, gone := make(chan struct{}), make(chan struct{})
			in := f.instance(nil, nil)
			s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				<-idemhttp.Client(r.Context()).Done()
				close(gone)
				require.NoError(t, r.Context().Err())
				w.WriteHeader(http.StatusCreated)
				for range 100 { // more than the socket takes
					_, err := io.WriteString(w, strings.Repeat("x", 10<<10))
					require.NoError(t, err)
					if how == "flushing" {
						require.NoError(t, http.NewResponseController(w).Flush())
					}
				}
			})
			ctx, cancel := context.WithCancel(ctxT(t))
			sent := make(chan error, 1)
			r := s.request("/", "k", "body").WithContext(ctx)
			go func() {
				_, err := s.send(r)
				sent <- err
			}()
			got(t, begun, "a begin")
			cancel()
			require.Error(t, got(t, sent, "an end"))
			got(t, gone, "the server learns of it")
			require.Eventually(t, func() bool { return s.post("/", "k", "body").replayed() }, soon, 5*time.Millisecond)
			re := s.post("/", "k", "body")
			require.Equal(t, http.StatusCreated, re.StatusCode)
			require.Len(t, re.body, 1000<<10)
			require.EqualValues(t, 1, s.calls.Load())
		})
	}
	require.Equal(t, t.Context(), idemhttp.Client(t.Context()))
}

// Operations that etcd does not take: nothing is recorded, and the client does not learn
// that all is well. What was streamed is cut off.
func TestRefusedOperations(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	var reported atomic.Pointer[error]
	s := in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported.Store(&err) }}, func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		a.Attach(nil, clientv3.OpPut(f.Root+"x", "1"), clientv3.OpPut(f.Root+"x", "2"))
		paid(w, r)
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
		}
	})
	first := s.post("/", "k", "body")
	require.Equal(t, idemhttp.CodeInternal, first.problem(t).Code)
	require.Empty(t, first.Header.Get("Location")+first.Header.Get("Retry-After"))
	require.ErrorIs(t, *reported.Load(), idempotency.ErrInvalid)
	require.Equal(t, idemhttp.CodeUnknown, s.post("/", "k", "body").problem(t).Code)
	require.EqualValues(t, 1, s.calls.Load())
	_, err := s.send(s.request("/stream", "k", "body"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// While etcd is unavailable no handler runs, except with FailOpen; outcomes in the cache are still
// replayed.
func TestEtcdIsAway(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(&concurrency.SessionOptions{TTL: 30 * time.Second}, nil)
	s := in.serve(nil, paid)
	short := in.serve(&idemhttp.Options{StoreTimeout: 300 * time.Millisecond}, paid)
	open := in.serve(&idemhttp.Options{StoreTimeout: 300 * time.Millisecond, FailOpen: true}, func(w http.ResponseWriter, r *http.Request) {
		_, ok := idempotency.FromContext(r.Context())
		require.False(t, ok)
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		_, _ = w.Write(b)
	})
	require.False(t, s.post("/", "before", "body").replayed())
	in.client.Cut()
	require.True(t, s.post("/", "before", "body").replayed())
	re := short.post("/", "k", "body")
	p := re.problem(t)
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	require.Equal(t, idemhttp.CodeUnavailable, p.Code)
	require.NotEmpty(t, re.Header.Get("Retry-After"))
	require.NotContains(t, re.body, "127.0.0.1")
	require.Zero(t, short.calls.Load())
	require.Equal(t, "body", open.post("/", "k", "body").body)
	require.EqualValues(t, 1, open.calls.Load())

	in.client.Heal()
	require.Eventually(t, func() bool { return s.post("/", "k", "body").StatusCode == http.StatusCreated }, soon, 10*time.Millisecond)

	require.NoError(t, in.sess.Close(ctxT(t)))
	require.Equal(t, idemhttp.CodeUnavailable, s.post("/", "k2", "body").problem(t).Code)
}

// FailOpen is for clients that are there: for one that has gone while etcd was asked nothing
// runs.
func TestFailOpenWithoutAClient(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(&concurrency.SessionOptions{TTL: 30 * time.Second}, nil)
	mw := in.middleware(&idemhttp.Options{FailOpen: true})
	in.client.Cut()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("body"))
	r.Header.Set("Idempotency-Key", "k")
	asked := make(chan struct{})
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("body"), atEnd(func() { close(asked) })))
	r.ContentLength = -1
	go func() { <-asked; cancel() }()
	w := httptest.NewRecorder()
	mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })).ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// A285: a client that leaves while its request waits is nothing that an operator should know, and was reported as an etcd
// that is away. If etcd does not answer until the client leaves, that is reported.
func TestReportsOfClientsThatLeave(t *testing.T) {
	t.Parallel()
	for away, leaves := range map[bool]time.Duration{false: 0, true: 2 * time.Second} {
		in := shared(t).instance(&concurrency.SessionOptions{TTL: 30 * time.Second}, nil)
		reported := make(chan error, 1)
		client, leave := context.WithTimeout(ctxT(t), time.Minute)
		mw := in.middleware(&idemhttp.Options{StoreTimeout: time.Minute, ReportError: func(_ *http.Request, err error) { reported <- err }, Payload: func(*http.Request, []byte) (any, error) {
			time.AfterFunc(leaves, leave)
			if !away {
				<-client.Done()
			}
			return nil, nil
		}})
		if away {
			in.client.Cut()
		}
		r := httptest.NewRequestWithContext(client, http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })).ServeHTTP(httptest.NewRecorder(), r)
		if !away {
			require.Empty(t, reported)
			continue
		}
		require.ErrorIs(t, got(t, reported, "an error"), concurrency.ErrUnavailable)
	}
}

// atEnd is an empty reader that calls when it is read.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }

// A response that the Codec cannot write is the first client's; it is done all the same.
func TestCodecFails(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, &idempotency.Options{SingleTenant: true, Codec: noCodec{}}).serve(nil, paid)
	require.Equal(t, http.StatusCreated, s.post("/", "k", "body").StatusCode)
	require.Equal(t, idemhttp.CodeNotKept, s.post("/", "k", "body").problem(t).Code)
	require.EqualValues(t, 1, s.calls.Load())
}

type noCodec struct{}

func (noCodec) Name() string                       { return "none" }
func (noCodec) Encode(_, _ []byte) ([]byte, error) { return nil, io.ErrShortWrite }
func (noCodec) Decode(b, _ []byte) ([]byte, error) { return b, nil }

// I24: a panic, http.ErrAbortHandler and runtime.Goexit leave the attempt as lost, and reach the
// server. The next duplicate takes over or is refused, by the policy.
func TestPanics(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for name, bang := range map[string]func(){
		"panic": func() { panic(http.ErrAbortHandler) }, "goexit": runtime.Goexit,
		"after a part": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Bool
			bad.Store(true)
			s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
				a, _ := idempotency.FromContext(r.Context())
				if !bad.Swap(false) {
					require.Equal(t, 2, a.Attempt())
					paid(w, r)
					return
				}
				if bang == nil {
					_, _ = io.WriteString(w, "half of it")
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
				bang()
			})
			_, err := s.send(s.request("/", `"`+name+`"`, "body"))
			require.Error(t, err)
			re := s.post("/", `"`+name+`"`, "body")
			require.Equal(t, http.StatusCreated, re.StatusCode)
			require.False(t, re.replayed())
			require.True(t, s.post("/", `"`+name+`"`, "body").replayed())
		})
	}
	forgetful := in.serve(&idemhttp.Options{Each: func(*http.Request) []idempotency.Option {
		return []idempotency.Option{idempotency.OnPanic(idempotency.Forget)}
	}}, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	for range 2 {
		_, err := forgetful.send(forgetful.request("/", "k", "body"))
		require.Error(t, err)
	}
	require.EqualValues(t, 2, forgetful.calls.Load())
}

// I01: the response of an attempt that another one has taken over is not recorded, and its client
// gets a 409, whether or not etcd is reachable again: the outcome is the successor's.
func TestZombie(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := newBlocking(t)
	a := f.instance(nil, nil)
	sa, sb := a.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		h.begun <- r
		<-h.end
		_, _ = io.WriteString(w, "the zombie's")
	}), f.instance(nil, nil).serve(nil, paid)
	zombie := sa.later("/", "k", "body")
	r := got(t, h.begun, "a begin")
	require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
	got(t, r.Context().Done(), "the attempt's context ends with its session")
	var second reply
	require.Eventually(t, func() bool {
		second = sb.post("/", "k", "body")
		return second.StatusCode == http.StatusCreated
	}, soon, 10*time.Millisecond)
	require.False(t, second.replayed())
	h.release()
	require.Equal(t, idemhttp.CodeInProgress, got(t, zombie, "an answer").problem(t).Code)
	require.Equal(t, second.body, sb.post("/", "k", "body").body)
	require.EqualValues(t, 1, sb.calls.Load())
}

// A handler that is interrupted and answers with a failure leaves the attempt as lost, since how far
// it came is unknown. Its client does not get that failure.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(quick(), &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse, MaxExecution: 50 * time.Millisecond})
	s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		w.WriteHeader(499)
	})
	for range 2 {
		require.Equal(t, idemhttp.CodeUnknown, s.post("/", "k", "body").problem(t).Code)
	}
}

// A duplicate that waits gets the first response; one that stops waiting, or whose client hangs up,
// has no effect on the others.
func TestWaiting(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := newBlocking(t)
	a := f.instance(nil, nil).serve(&idemhttp.Options{Wait: 30 * time.Second}, h.ServeHTTP)
	other := f.instance(nil, nil)
	b := other.serve(&idemhttp.Options{Wait: 30 * time.Second}, paid)
	impatient := other.serve(&idemhttp.Options{Wait: 20 * time.Millisecond}, paid)
	first := a.later("/", "k", "body")
	got(t, h.begun, "a begin")
	waiting := []<-chan reply{a.later("/", "k", "body"), b.later("/", "k", "body"), b.later("/", "k", "body")}
	ctx, cancel := context.WithCancel(ctxT(t))
	left := make(chan error, 1)
	r := b.request("/", "k", "body").WithContext(ctx)
	go func() {
		_, err := b.send(r)
		left <- err
	}()
	require.Equal(t, idemhttp.CodeInProgress, impatient.post("/", "k", "body").problem(t).Code)
	cancel()
	require.Error(t, got(t, left, "an end"))
	require.Equal(t, idemhttp.CodeInProgress, impatient.post("/", "k", "body").problem(t).Code)
	h.release()
	require.False(t, got(t, first, "the response").replayed())
	for _, ch := range waiting {
		re := got(t, ch, "a replay")
		require.True(t, re.replayed())
		require.Equal(t, http.StatusCreated, re.StatusCode)
	}
	require.EqualValues(t, 1, a.calls.Load())
	require.Zero(t, b.calls.Load()+impatient.calls.Load())
}
