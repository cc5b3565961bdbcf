package virtual

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// slowly is the ResponseWriter of a client that takes a time for each write, without deadlines.
type slowly struct {
	*httptest.ResponseRecorder
	takes time.Duration
	ended chan struct{} // the connection
}

func (s *slowly) wait() error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-s.ended:
		return io.ErrClosedPipe
	}
}

func (s *slowly) Write(p []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, err
	}
	return s.ResponseRecorder.Write(p)
}

func (s *slowly) FlushError() error { return s.wait() }

// A700: how long a client that does not read, or hardly, holds an attempt: 30 seconds or a quarter of MaxExecution for a part,
// half of MaxExecution for all of them, and one second once Close has begun or the attempt's context has ended. The handler
// runs once, and its outcome is recorded unless the attempt was lost.
func TestResponseThatIsNotRead(t *testing.T) {
	t.Parallel()
	const never = 1000 * time.Hour
	for name, c := range map[string]struct {
		takes, max time.Duration
		closes     time.Duration // after which the session is closed, or 0
		flush      bool
		works      time.Duration // before the response
		parts      int           // of 32 KiB, after 1 MiB that is buffered
		want       time.Duration // until the handler ends
		lost       bool
	}{
		"not at all":                  {takes: never, max: 15 * time.Minute, parts: 1, want: 30 * time.Second},
		"not at all, in a short time": {takes: never, max: 40 * time.Second, parts: 1, want: 10 * time.Second},
		"not at all, a flush":         {takes: never, max: 15 * time.Minute, flush: true, want: 30 * time.Second},
		"slowly":                      {takes: 6 * time.Second, max: 15 * time.Minute, parts: 1, want: 33 * 6 * time.Second},
		"too slowly":                  {takes: 20 * time.Second, max: 15 * time.Minute, parts: 1, want: 450 * time.Second},
		"after work":                  {takes: never, max: 15 * time.Minute, works: 14 * time.Minute, parts: 1, want: 14*time.Minute + 30*time.Second},
		"while Close waits":           {takes: never, max: 15 * time.Minute, closes: 10 * time.Second, parts: 1, want: 11 * time.Second},
		"after its attempt":           {takes: never, max: time.Minute, works: 2 * time.Minute, parts: 1, want: 2*time.Minute + time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				runs, took := 0, make(chan time.Duration, 1)
				o := tenant()
				o.MaxExecution, o.OnLost = c.max, idempotency.Refuse
				handler := func(d *desk) http.Handler {
					st, err := idempotency.NewStore(d.session, "reports", &o)
					require.NoError(t, err)
					mw, err := idemhttp.Middleware(st, nil)
					require.NoError(t, err)
					return mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						runs++
						begun := time.Now()
						time.Sleep(c.works)
						w.WriteHeader(http.StatusCreated)
						if c.flush {
							_ = http.NewResponseController(w).Flush()
						}
						_, _ = w.Write(make([]byte, c.parts<<15))
						if c.parts > 0 {
							_, _ = w.Write(make([]byte, 1<<20))
						}
						took <- time.Since(begun)
					}))
				}
				request := func() *http.Request {
					r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/reports", nil)
					r.Header.Set("Idempotency-Key", "k")
					return r
				}
				w, broken := &slowly{httptest.NewRecorder(), c.takes, make(chan struct{})}, make(chan any, 1)
				go func() {
					defer func() { broken <- recover() }()
					handler(on[0]).ServeHTTP(w, request())
				}()
				if c.closes > 0 {
					time.Sleep(c.closes)
					require.Less(t, on[0].close(time.Minute), 2*time.Second)
				}
				require.Equal(t, c.want, <-took)
				synctest.Wait()
				again := httptest.NewRecorder()
				handler(on[1]).ServeHTTP(again, request())
				require.Equal(t, c.lost, again.Header().Get("Idempotent-Replayed") == "", again.Body)
				require.Equal(t, map[bool]int{false: http.StatusCreated, true: http.StatusConflict}[c.lost], again.Code)
				if c.takes == never {
					require.Empty(t, broken, "ServeHTTP returns when the server is done with the write")
				}
				close(w.ended)
				end, ok := (<-broken).(error)
				require.Equal(t, c.takes != 6*time.Second, ok && errors.Is(end, http.ErrAbortHandler), end)
				require.Equal(t, 1, runs)
			})
		})
	}
}

// A717: a client that did not read broke the inner one of two Middlewares off, and the outer attempt was lost. Both record the
// outcome.
func TestTwoMiddlewaresAndAResponseThatIsNotRead(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		runs, took := 0, make(chan struct{})
		behind := func(name string, max time.Duration, next http.Handler) http.Handler {
			o := tenant()
			o.MaxExecution, o.OnLost = max, idempotency.Refuse
			st, err := idempotency.NewStore(on[0].session, name, &o)
			require.NoError(t, err)
			mw, err := idemhttp.Middleware(st, nil)
			require.NoError(t, err)
			return mw(next)
		}
		inner := behind("inner", 40*time.Second, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(make([]byte, 2<<20))
			close(took)
		}))
		outer := behind("outer", 15*time.Minute, inner)
		request := func() *http.Request {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/reports", nil)
			r.Header.Set("Idempotency-Key", "k")
			return r
		}
		w, broken := &slowly{httptest.NewRecorder(), 1000 * time.Hour, make(chan struct{})}, make(chan any, 1)
		go func() {
			defer func() { broken <- recover() }()
			outer.ServeHTTP(w, request())
		}()
		<-took
		synctest.Wait()
		for _, handler := range []http.Handler{outer, inner} {
			again := httptest.NewRecorder()
			handler.ServeHTTP(again, request())
			require.Equal(t, http.StatusCreated, again.Code, again.Body)
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
		}
		close(w.ended)
		require.Equal(t, http.ErrAbortHandler, <-broken)
		require.Equal(t, 1, runs)
	})
}
