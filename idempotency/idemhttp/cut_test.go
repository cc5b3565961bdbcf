package idemhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A19: a response above MaxResponse that breaks off has an unknown outcome, as one below it has.
func TestLargeResponseBreaksOff(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	reported := make(chan error, 10)
	s := in.serve(&idemhttp.Options{MaxResponse: 1000, ReportError: func(_ *http.Request, err error) { reported <- err }}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/decided" {
			idemhttp.Decide(r.Context(), idempotency.Remember)
		}
		length := 3000
		if r.URL.Path == "/grows" {
			length = 900 // the limit is not passed: a part is refused
		}
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = io.WriteString(w, strings.Repeat("x", 800))
		_, err := io.WriteString(w, strings.Repeat("x", 800))
		require.Equal(t, r.URL.Path == "/grows", err != nil)
	})
	for _, path := range []string{"/", "/grows"} {
		_, err := s.send(s.request(path, "k", "body"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, got(t, reported, "an error"), "shorter than its Content-Length")
		require.ErrorIs(t, got(t, reported, "an error"), idempotency.ErrUnknown, "when it ends")
		require.Equal(t, idemhttp.CodeUnknown, s.post(path, "k", "body").problem(t).Code, path)
		require.ErrorIs(t, got(t, reported, "an error"), idempotency.ErrUnknown, "and for a duplicate")
	}
	_, err := s.send(s.request("/decided", "k", "body"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, s.post("/decided", "k", "body").replayed())
}

// A286: a client leaves in the middle of a response above MaxResponse. The error of Write stopped the handler between two
// payouts, and that was recorded as done. As with a smaller response, Write succeeds, so the handler does all of its work.
func TestClientDisconnectsDuringALargeResponse(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"", strconv.Itoa(1000 + 64<<20)} {
		t.Run("Content-Length "+length, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
			begun, paid := make(chan struct{}), make(chan int, 1)
			s := in.serve(&idemhttp.Options{MaxResponse: 500}, func(w http.ResponseWriter, r *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				} else {
					idemhttp.Decide(r.Context(), idempotency.Remember) // nothing else shows that the response is whole
				}
				_, _ = w.Write(make([]byte, 1000))
				close(begun)
				<-idemhttp.Client(r.Context()).Done()
				done := 0
				defer func() { paid <- done }()
				for range 64 {
					done++
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return
					}
				}
			})
			ctx, cancel := context.WithCancel(ctxT(t))
			left := make(chan error, 1)
			r := s.request("/", "k", "body").WithContext(ctx)
			go func() {
				_, err := s.send(r)
				left <- err
			}()
			got(t, begun, "a begin")
			cancel()
			require.Error(t, got(t, left, "an end"))
			require.Equal(t, 64, got(t, paid, "the handler's end"))
			var re reply
			require.Eventually(t, func() bool { re = s.post("/", "k", "body"); return re.replayed() }, soon, 1e6)
			require.Equal(t, "true", re.Header.Get("Idempotency-Body-Omitted"))
			require.EqualValues(t, 1, s.calls.Load())
		})
	}
}

// A286: the same with HTTP/2, where Write can fail a moment before the request's context ends.
func TestConnectionBreaksDuringALargeResponse(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	paid := make(chan int, 1)
	once := in.middleware(&idemhttp.Options{MaxResponse: 500})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		done := 0
		defer func() { paid <- done }()
		for range 64 {
			done++
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	}))
	for n := range 20 {
		s := httptest.NewUnstartedServer(once)
		s.EnableHTTP2 = true
		s.StartTLS()
		r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, s.URL, nil)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", strconv.Itoa(n))
		resp, err := s.Client().Do(r)
		require.NoError(t, err)
		s.CloseClientConnections()
		require.Equal(t, 64, got(t, paid, "the handler's end"))
		_, err = io.Copy(io.Discard, resp.Body)
		require.Error(t, err)
		require.NoError(t, resp.Body.Close())
		s.Close()
	}
}

// A286: a handler that writes until Write fails ends with its attempt, and has not done its work.
func TestEndlessResponseWithoutAClient(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse, MaxExecution: 200 * time.Millisecond})
	ctx, leave := context.WithCancel(ctxT(t))
	mw := in.middleware(&idemhttp.Options{MaxResponse: 500})
	r := httptestRequest(t, "k").WithContext(ctx)
	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() {
		mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			leave()
			for {
				if _, err := w.Write(make([]byte, 1000)); err != nil {
					return
				}
			}
		})).ServeHTTP(&unheard{httptest.NewRecorder(), ctx}, r)
	})
	require.Eventually(t, func() bool {
		w := httptest.NewRecorder()
		mw(http.NotFoundHandler()).ServeHTTP(w, httptestRequest(t, "k"))
		return strings.Contains(w.Body.String(), string(idemhttp.CodeUnknown))
	}, soon, 10*time.Millisecond)
}

// unheard is a connection whose client may leave.
type unheard struct {
	*httptest.ResponseRecorder
	client context.Context
}

func (u *unheard) Write(p []byte) (int, error) {
	if err := u.client.Err(); err != nil {
		return 0, err
	}
	return u.ResponseRecorder.Write(p)
}

func httptestRequest(t *testing.T, key string) *http.Request {
	r := httptest.NewRequestWithContext(ctxT(t), http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", key)
	return r
}
