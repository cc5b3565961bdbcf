package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// middleware returns a middleware of the store.
func middleware(t testing.TB, st *idempotency.Store, opts *idemhttp.Options) func(http.Handler) http.Handler {
	t.Helper()
	mw, err := idemhttp.Middleware(st, opts)
	require.NoError(t, err)
	return mw
}

// stores returns the stores of two processes.
func stores(t testing.TB) (all [2]*idempotency.Store) {
	t.Helper()
	etcd := embedtest.Shared(t)
	prefix := etcd.Prefix(t)
	for i := range all {
		s, err := concurrency.NewSession(ctxT(t), etcd.NewClient(t, nil).Client, "test", &concurrency.SessionOptions{Prefix: prefix})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = s.Close(ctx)
		})
		all[i], err = idempotency.NewStore(s, "store", &idempotency.Options{SingleTenant: true})
		require.NoError(t, err)
	}
	return all
}

// under returns a middleware of a store of its own, with that policy.
func under(t testing.TB, policy idempotency.LostPolicy) func(http.Handler) http.Handler {
	t.Helper()
	return middleware(t, stores(t)[0], &idemhttp.Options{Each: func(*http.Request) []idempotency.Option {
		return []idempotency.Option{idempotency.OnLost(policy)}
	}})
}

type answer struct {
	status   int
	body     string
	header   http.Header
	replayed bool
}

func send(t testing.TB, h http.Handler, path, key string, headers ...string) answer {
	t.Helper()
	a, err := trySend(t, h, path, key, headers...)
	require.NoError(t, err)
	return a
}

// trySend is send for a response that may break off.
func trySend(t testing.TB, h http.Handler, path, key string, headers ...string) (answer, error) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, srv.URL+path, strings.NewReader(`{"cents":100}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(b), resp.Header, resp.Header.Get("Idempotent-Replayed") == "true"}, err
}

func TestIdempotencyWithChi(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var routers []http.Handler
	for _, st := range stores(t) {
		r := chi.NewRouter()
		r.Use(chimiddleware.RequestID, chimiddleware.Recoverer, chimiddleware.Compress(5))
		r.With(middleware(t, st, nil)).Post("/orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, chi.URLParam(r, "id")+string(b))
		})
		routers = append(routers, r)
	}
	const want = `7{"cents":100}`
	first := send(t, routers[0], "/orders/7/pay", `"k"`)
	require.Equal(t, want, first.body)
	require.False(t, first.replayed)
	for _, r := range routers {
		for _, takes := range []string{"gzip", "identity"} {
			again := send(t, r, "/orders/7/pay", "k", "Accept-Encoding", takes)
			require.True(t, again.replayed)
			require.Equal(t, http.StatusCreated, again.status)
			require.Equal(t, takes == "gzip", again.header.Get("Content-Encoding") == "gzip")
			if takes == "identity" {
				require.Equal(t, want, again.body)
			}
		}
	}
	require.EqualValues(t, 1, calls.Load())
	require.Equal(t, http.StatusBadRequest, send(t, routers[0], "/orders/7/pay", "").status)
	require.False(t, send(t, routers[0], "/orders/8/pay", "k").replayed)
}

// writeErrors has echo write the error of a handler, behind a middleware.
func writeErrors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := next(c); err != nil {
			c.Error(err)
		}
		return nil
	}
}

// In front of a whole echo.Echo, and as one of its middlewares: then what a handler returns
// as an error has to be written behind it.
func TestIdempotencyWithEcho(t *testing.T) {
	t.Parallel()
	inside := func(mw func(http.Handler) http.Handler, h echo.HandlerFunc) http.Handler {
		e := echo.New()
		e.POST("/orders/:id/:how", h, echo.WrapMiddleware(mw), writeErrors)
		return e
	}
	before := func(mw func(http.Handler) http.Handler, h echo.HandlerFunc) http.Handler {
		e := echo.New()
		e.POST("/orders/:id/:how", h)
		return mw(e)
	}
	for name, make := range map[string]func(func(http.Handler) http.Handler, echo.HandlerFunc) http.Handler{"inside": inside, "before": before} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			var all []http.Handler
			for _, st := range stores(t) {
				all = append(all, make(middleware(t, st, nil), func(c echo.Context) error {
					calls.Add(1)
					var body struct {
						Cents int `json:"cents"`
					}
					if err := c.Bind(&body); err != nil {
						return err
					}
					if _, ok := idempotency.FromContext(c.Request().Context()); !ok {
						return errors.New("no attempt")
					}
					switch c.Param("how") {
					case "declined":
						return echo.NewHTTPError(http.StatusUnprocessableEntity, "declined")
					case "broken":
						return errors.New("broken")
					}
					return c.JSON(http.StatusCreated, body)
				}))
			}
			for n, want := range map[string]answer{
				"/orders/1/paid":     {status: 201, body: "{\"cents\":100}\n", replayed: true},
				"/orders/1/declined": {status: 422, body: "{\"message\":\"declined\"}\n", replayed: true},
				"/orders/1/broken":   {status: 500, body: "{\"message\":\"Internal Server Error\"}\n"},
			} {
				calls.Store(0)
				for i, h := range all {
					a := send(t, h, n, "k")
					require.Equal(t, want.status, a.status, n)
					require.Equal(t, want.body, a.body, n)
					require.Equal(t, want.replayed && i > 0, a.replayed, n)
				}
				if want.replayed {
					require.EqualValues(t, 1, calls.Load())
				}
			}
		})
	}
}

// V14: a 504 that a handler of echo returns leaves the outcome unknown under Refuse, if it is written behind the
// Middleware. It was recorded as an empty 200 with echo.WrapMiddleware alone, which only the package's comment said.
func TestEchoErrorUnderRefuse(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	refuse := &idemhttp.Options{Each: func(*http.Request) []idempotency.Option {
		return []idempotency.Option{idempotency.OnLost(idempotency.Refuse)}
	}}
	timesOut := func(echo.Context) error {
		calls.Add(1)
		return echo.NewHTTPError(http.StatusGatewayTimeout, "the provider did not answer")
	}
	once := middleware(t, stores(t)[0], refuse)
	route, whole := echo.New(), echo.New()
	route.POST("/route", timesOut, echo.WrapMiddleware(once), writeErrors)
	whole.POST("/whole", timesOut)
	for path, h := range map[string]http.Handler{"/route": route, "/whole": once(whole)} {
		calls.Store(0)
		require.Equal(t, http.StatusGatewayTimeout, send(t, h, path, "k").status)
		again := send(t, h, path, "k")
		require.Equal(t, http.StatusConflict, again.status)
		require.Contains(t, again.body, idemhttp.CodeUnknown)
		require.EqualValues(t, 1, calls.Load())
	}
}

// With echo.WrapMiddleware alone, echo writes errors after the response was sent: ReportError is
// called.
func TestIdempotencyWithEchoTooLate(t *testing.T) {
	t.Parallel()
	var reported atomic.Int64
	e := echo.New()
	mw := middleware(t, stores(t)[0], &idemhttp.Options{ReportError: func(*http.Request, error) { reported.Add(1) }})
	e.POST("/", func(echo.Context) error { return echo.NewHTTPError(http.StatusUnprocessableEntity, "declined") }, echo.WrapMiddleware(mw))
	require.Empty(t, send(t, e, "/", "k").body)
	require.Positive(t, reported.Load())
}

// onError leaves an attempt as lost whose error echo cannot write any more, as docs/integrations.md has it.
func onError(err error, c echo.Context) {
	if r := c.Response(); r.Committed && r.Status < 400 { // too late to write err
		idemhttp.Decide(c.Request().Context(), idempotency.Abandon)
	}
	c.Echo().DefaultHTTPErrorHandler(err, c)
}

// A449: echo's RequestLogger with HandleError has echo write an error, and returns it: onError is called for it a second time.
// It took the answer that it had written itself for half a response, so a final 422 was no outcome.
func TestEchoErrorsThatAreWrittenTwice(t *testing.T) {
	t.Parallel()
	st := stores(t)[0]
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		once := middleware(t, st, &idemhttp.Options{Each: func(*http.Request) []idempotency.Option {
			return []idempotency.Option{idempotency.OnLost(policy)}
		}})
		for _, recipe := range []string{"route", "whole"} {
			t.Run(fmt.Sprintf("%s, %d", recipe, policy), func(t *testing.T) {
				t.Parallel()
				var calls, errs atomic.Int64
				e := echo.New()
				e.HTTPErrorHandler = func(err error, c echo.Context) {
					errs.Add(1)
					onError(err, c)
				}
				logs := echomiddleware.RequestLoggerWithConfig(echomiddleware.RequestLoggerConfig{
					HandleError: true, LogValuesFunc: func(echo.Context, echomiddleware.RequestLoggerValues) error { return nil },
				})
				handle := func(echo.Context) error {
					calls.Add(1)
					return echo.NewHTTPError(http.StatusUnprocessableEntity, "declined")
				}
				h, path := http.Handler(e), fmt.Sprintf("/%s/%d", recipe, policy)
				if recipe == "route" {
					e.POST(path, handle, echo.WrapMiddleware(once), writeErrors, logs)
				} else {
					e.POST(path, handle, logs)
					h = once(e)
				}
				for n := range 2 {
					a := send(t, h, path, "k")
					require.Equal(t, []any{422, "{\"message\":\"declined\"}\n", n > 0}, []any{a.status, a.body, a.replayed})
				}
				require.Equal(t, []int64{1, 2}, []int64{calls.Load(), errs.Load()})
			})
		}
	}
}

// A449: an error or a panic after echo has written the header was recorded as a success, and replayed: echo writes no error
// then. By both recipes nothing is recorded, the client gets no success, and what was attached is not written.
func TestEchoErrorsAfterTheHeader(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Shared(t)
	ends := map[string]echo.HandlerFunc{
		"an error": func(c echo.Context) error {
			c.Response().WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(c.Response(), "half ")
			return errors.New("the provider did not answer")
		},
		"a reader that fails": func(c echo.Context) error {
			return c.Stream(http.StatusCreated, "text/plain", io.MultiReader(strings.NewReader("half "), iotest.ErrReader(io.ErrUnexpectedEOF)))
		},
		"a panic": func(c echo.Context) error {
			c.Response().WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(c.Response(), "half ")
			panic("after the charge")
		},
		"a panic after a part was sent": func(c echo.Context) error {
			_, _ = io.WriteString(c.Response(), "half ")
			c.Response().Flush()
			panic("after the charge")
		},
	}
	st := stores(t)[0]
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		once := middleware(t, st, &idemhttp.Options{Each: func(*http.Request) []idempotency.Option {
			return []idempotency.Option{idempotency.OnLost(policy)}
		}})
		for name, end := range ends {
			for _, recipe := range []string{"route", "whole"} {
				t.Run(fmt.Sprintf("%s, %s, %d", name, recipe, policy), func(t *testing.T) {
					t.Parallel()
					path, own := fmt.Sprintf("/%s/%d/%s", recipe, policy, strings.ReplaceAll(name, " ", "-")), etcd.Prefix(t)+"own"
					var calls atomic.Int64
					e := echo.New()
					e.HTTPErrorHandler = onError
					e.Logger.SetOutput(io.Discard)
					handle := func(c echo.Context) error {
						if calls.Add(1) > 1 {
							return c.String(http.StatusCreated, "paid")
						}
						a, _ := idempotency.FromContext(c.Request().Context())
						a.Attach(nil, clientv3.OpPut(own, "written"))
						return end(c)
					}
					h := http.Handler(e)
					if recipe == "route" {
						e.POST(path, handle, echo.WrapMiddleware(once), writeErrors, echomiddleware.Recover())
					} else {
						e.POST(path, handle, echomiddleware.Recover())
						h = once(e)
					}
					srv := httptest.NewServer(h)
					defer srv.Close()
					post := func() (status int, body string) {
						r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, srv.URL+path, nil)
						require.NoError(t, err)
						r.Header.Set("Idempotency-Key", "k")
						resp, err := srv.Client().Do(r)
						require.NoError(t, err)
						defer resp.Body.Close()
						require.Empty(t, resp.Header.Get("Idempotent-Replayed"))
						b, err := io.ReadAll(resp.Body)
						require.Equal(t, resp.StatusCode < 400 && calls.Load() == 1, err != nil, "a part that was sent breaks off")
						return resp.StatusCode, string(b)
					}
					status, _ := post()
					require.Equal(t, status < 400, name == "a panic after a part was sent")
					status, body := post()
					there, err := etcd.Client().Get(ctxT(t), own)
					require.NoError(t, err)
					require.Empty(t, there.Kvs)
					if policy == idempotency.Refuse {
						require.Equal(t, http.StatusConflict, status)
						require.Contains(t, body, idemhttp.CodeUnknown)
						return
					}
					require.Equal(t, []any{http.StatusCreated, "paid"}, []any{status, body})
				})
			}
		}
	}
}
