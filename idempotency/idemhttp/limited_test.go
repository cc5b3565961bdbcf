package idemhttp_test

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// TestBehindALimit: a request that a limit has refused executes when it is repeated, whatever the policy and the order
// of the two middlewares: its handler did not run (A267 in internal/proof/tested-failures.md). If something else is
// between them, what that has done is not known.
func TestBehindALimit(t *testing.T) {
	t.Parallel()
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		for why, limit := range map[string]int{"full": 1, "held": 2} {
			for _, order := range []string{"limit in front", "limit behind", "two limits behind", "limit behind another handler", "limit behind a proxy"} {
				t.Run(policy+", "+why+", "+order, func(t *testing.T) {
					t.Parallel()
					in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: onLost})
					limited := func(name string, limit int) (*concurrency.KeyedLimiter, func(http.Handler) http.Handler) {
						lim, err := concurrency.NewKeyedLimiter(in.sess, name, limit, nil)
						require.NoError(t, err)
						mw, err := limithttp.Middleware(lim, limithttp.Options{
							Key: func(*http.Request) (string, bool) { return "acme", true },
							Each: func(*http.Request) []concurrency.AcquireOption {
								return []concurrency.AcquireOption{concurrency.ID("flow")}
							},
						})
						require.NoError(t, err)
						return lim, mw
					}
					lim, mw := limited("tenants", limit)
					_, other := limited("models", 5)
					var calls atomic.Int64
					h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						calls.Add(1)
						w.WriteHeader(http.StatusCreated)
					}))
					switch order {
					case "limit in front":
						h = mw(in.middleware(nil)(h))
					case "limit behind":
						h = in.middleware(nil)(mw(h))
					case "two limits behind":
						h = in.middleware(nil)(other(mw(h)))
					case "limit behind a proxy":
						to, err := url.Parse(in.hosting(&calls, mw(h)).URL)
						require.NoError(t, err)
						h = in.middleware(nil)(httputil.NewSingleHostReverseProxy(to))
					default:
						inner := mw(h)
						h = in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r) }))
					}
					s := in.hosting(&calls, h)
					p, err := lim.Key("acme").Acquire(ctxT(t), concurrency.ID(map[string]string{"full": "another", "held": "flow"}[why]))
					require.NoError(t, err)
					want := map[string]int{"full": http.StatusTooManyRequests, "held": http.StatusConflict}[why]
					require.Equal(t, want, s.post("/pay", "k", "body").StatusCode)
					require.NoError(t, p.Release(ctxT(t)))
					re := s.post("/pay", "k", "body")
					switch {
					case !strings.HasPrefix(order, "limit behind a"):
						require.Equal(t, http.StatusCreated, re.StatusCode, re.body)
						require.True(t, s.post("/pay", "k", "body").replayed())
						require.EqualValues(t, 1, calls.Load())
					case onLost == idempotency.Refuse:
						require.Equal(t, idemhttp.CodeUnknown, re.problem(t).Code)
						require.Zero(t, calls.Load())
					default: // the 409 of an ID in use says when to come back, so it is no final one (A585)
						require.Equal(t, http.StatusCreated, re.StatusCode, re.body)
						require.True(t, s.post("/pay", "k", "body").replayed())
						require.EqualValues(t, 1, calls.Load())
					}
				})
			}
		}
	}
}

// TestLimitWhoseRefusalIsNoFailure: Options.OnProblem of a limit answers in a form of the program's own. Whatever its
// status is, no handler has run, so nothing is recorded (A267 in internal/proof/tested-failures.md).
func TestLimitWhoseRefusalIsNoFailure(t *testing.T) {
	t.Parallel()
	for answer, write := range map[string]func(http.ResponseWriter){
		"200 with an error in it": func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"error":"busy"}`) },
		"303":                     func(w http.ResponseWriter) { w.WriteHeader(http.StatusSeeOther) },
		"404":                     func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"nothing":                 func(http.ResponseWriter) {},
	} {
		for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
			t.Run(answer+", "+policy, func(t *testing.T) {
				t.Parallel()
				in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: onLost})
				lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
				require.NoError(t, err)
				mw, err := limithttp.Middleware(lim, limithttp.Options{
					Key:       func(*http.Request) (string, bool) { return "acme", true },
					OnProblem: func(w http.ResponseWriter, _ *http.Request, _ limithttp.Problem) { write(w) },
				})
				require.NoError(t, err)
				var calls atomic.Int64
				s := in.hosting(&calls, in.middleware(nil)(mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					calls.Add(1)
					w.WriteHeader(http.StatusCreated)
				}))))
				p, err := lim.Key("acme").Acquire(ctxT(t))
				require.NoError(t, err)
				require.False(t, s.post("/pay", "k", "body").replayed())
				require.NoError(t, p.Release(ctxT(t)))
				re := s.post("/pay", "k", "body")
				require.Equal(t, http.StatusCreated, re.StatusCode, re.body)
				require.True(t, s.post("/pay", "k", "body").replayed())
				require.EqualValues(t, 1, calls.Load())
			})
		}
	}
}

// TestChildCallOfANilBody: a RoundTripper may answer a call of an attempt by a response without a Body, or by none, as
// far as http.Client accepts it (A261 in internal/proof/tested-failures.md).
func TestChildCallOfANilBody(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	for _, kind := range []string{"", "application/grpc-web+proto"} {
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}}, nil
		})
		none := roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
		s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
			for rt, ok := range map[string]bool{"base": true, "none": false} {
				tr := &idemhttp.Transport{Base: map[string]http.RoundTripper{"base": base, "none": none}[rt]}
				call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+rt, nil)
				if err == nil {
					var resp *http.Response
					if resp, err = (&http.Client{Transport: tr}).Do(call); err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
				if (err == nil) != ok {
					t.Error(rt, err)
				}
			}
			w.WriteHeader(http.StatusCreated)
		})
		require.Equal(t, http.StatusCreated, s.post("/"+kind, "k"+kind, "body").StatusCode)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
