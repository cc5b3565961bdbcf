package virtual

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	rpc "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// tenant are the options of stores behind middlewares.
func tenant() idempotency.Options {
	return idempotency.Options{SingleTenant: true, MaxExecution: time.Hour}
}

// reply is what the client of a middleware gets.
type reply struct {
	done     bool // a success
	replayed bool
	code     string // of a refusal
	retry    bool   // a refusal says when to retry
	body     string
	aborted  bool // the connection breaks
}

// ask sends a request through a middleware, by one of the protocols.
type ask func(key string) reply

// work is a handler. It returns whether it succeeds.
type work func(ctx context.Context, key string) bool

// protocols are the middlewares for servers.
var protocols = map[string]func(t *testing.T, s *idempotency.Store, report func(error), do work) ask{
	"HTTP": func(t *testing.T, s *idempotency.Store, report func(error), do work) ask {
		mw, err := idemhttp.Middleware(s, &idemhttp.Options{ReportError: func(_ *http.Request, err error) { report(err) }})
		require.NoError(t, err)
		return askHTTP(t, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/payments/1")
			if do(r.Context(), r.Header.Get("Idempotency-Key")) {
				w.WriteHeader(http.StatusOK)
			} else {
				w.WriteHeader(http.StatusPaymentRequired)
			}
		})))
	},
	"gRPC": func(t *testing.T, s *idempotency.Store, report func(error), do work) ask {
		intercept, err := idemgrpc.UnaryServerInterceptor(s, &idemgrpc.Options{ReportError: func(_ context.Context, _ string, err error) { report(err) }})
		require.NoError(t, err)
		return func(key string) (re reply) {
			ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", key)), header{&re.replayed})
			_, err := intercept(ctx, new(emptypb.Empty), &grpc.UnaryServerInfo{FullMethod: "/test.Payments/Pay"}, func(ctx context.Context, _ any) (any, error) {
				if !do(ctx, key) {
					return nil, rpc.Error(codes.FailedPrecondition, "refused")
				}
				return new(emptypb.Empty), nil
			})
			re.done = err == nil
			for _, d := range rpc.Convert(err).Details() {
				switch d := d.(type) {
				case *errdetails.ErrorInfo:
					re.code = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(d.GetReason(), "IDEMPOTENCY_"), "_", "-"))
				case *errdetails.RetryInfo:
					re.retry = true
				}
			}
			return re
		}
	},
}

// header is where an interceptor says that its answer is a replay.
type header struct{ replayed *bool }

func (header) Method() string { return "/test.Payments/Pay" }
func (h header) SetHeader(md metadata.MD) error {
	*h.replayed = *h.replayed || len(md.Get("idempotent-replayed")) > 0
	return nil
}
func (h header) SendHeader(md metadata.MD) error { return h.SetHeader(md) }
func (header) SetTrailer(metadata.MD) error      { return nil }

// askHTTP asks a handler without a network.
func askHTTP(t *testing.T, h http.Handler) ask {
	return func(key string) (re reply) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		defer func() {
			if v := recover(); v != nil {
				re.aborted = v == http.ErrAbortHandler // it is passed on as it is
			}
		}()
		h.ServeHTTP(w, r)
		re = reply{done: w.Code < 300, replayed: w.Header().Get("Idempotent-Replayed") == "true", retry: w.Header().Get("Retry-After") != "", body: w.Body.String()}
		var p idemhttp.Problem
		if w.Header().Get("Content-Type") == "application/problem+json" && json.Unmarshal(w.Body.Bytes(), &p) == nil {
			re.code = string(p.Code)
			require.Empty(t, w.Header().Get("Location"))
		}
		return re
	}
}

const inProgress = string(idemhttp.CodeInProgress)

// The outcome cannot be recorded since etcd has become unavailable while the handler ran. Within the bound
// of a call to etcd the client gets the response if no other outcome is possible: with conditions,
// recording it may end in a conflict; after MaxExecution, another attempt may have begun. The key is claimed
// until the outcome is recorded, as soon as etcd is back.
func TestEtcdStopsBeforeTheCommit(t *testing.T) {
	for protocol, serve := range protocols {
		for how, away := range aways {
			for name, c := range map[string]struct {
				conditions string
				tooLong    bool
				dropped    bool // and it was left as lost before
				sent       bool
				after      string // what a retry gets when etcd is back; "" is a replay
			}{
				"certain":             {sent: true},
				"conditions, met":     {conditions: "="},
				"conditions, not met": {conditions: ">", after: string(idemhttp.CodeConflict)},
				"too long":            {tooLong: true},
				"too long, and lost":  {tooLong: true, dropped: true},
			} {
				t.Run(protocol+", "+name+", etcd "+how, func(t *testing.T) {
					bubble(t, 2, func(t *testing.T, on []*desk) {
						var reported error
						var stopped time.Time
						runs, second := 0, 0
						a := serve(t, on[0].storeOf(tenant()), func(err error) { reported = err }, func(ctx context.Context, _ string) bool {
							runs++
							at, _ := idempotency.FromContext(ctx)
							if c.conditions != "" {
								at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/no/such/key"), c.conditions, 0)})
							}
							if at.Attempt() > 1 {
								return true
							}
							stopped = time.Now()
							if c.tooLong {
								<-ctx.Done()
								require.Equal(t, time.Hour, time.Since(stopped))
								if c.dropped {
									time.Sleep(margin + time.Second)
								}
								stopped = time.Now()
							}
							away(on[0].client)
							return true
						})
						b := serve(t, on[1].storeOf(tenant()), func(error) {}, func(context.Context, string) bool {
							second++
							return true
						})
						re := a("k")
						require.Equal(t, c.sent, re.done)
						require.LessOrEqual(t, time.Since(stopped), commit.CallTimeout)
						require.ErrorIs(t, reported, idempotency.ErrNotRecorded)
						if !c.sent {
							require.Equal(t, inProgress, re.code)
							require.True(t, re.retry)
						}
						if re = b("k"); c.dropped {
							require.True(t, re.done && !re.replayed)
						} else {
							require.Equal(t, inProgress, re.code)
							require.Zero(t, second)
						}
						on[0].client.Heal()
						time.Sleep(time.Minute)
						if re = a("k"); c.after == "" {
							require.True(t, re.replayed)
							require.True(t, b("k").replayed)
							require.Equal(t, 1, runs)
						} else {
							require.Equal(t, c.after, re.code)
						}
					})
				})
			}
		}
	}
}

// A44: FailOpen is for requests of which nothing is known. A duplicate that waits for one in progress,
// within a TTL or beyond it, is refused if etcd becomes unavailable meanwhile, and so is one that only
// asks in the same process.
func TestFailOpenWhileOneWaits(t *testing.T) {
	for how, away := range aways {
		for _, wait := range []time.Duration{5 * time.Second, 10 * ttl} {
			t.Run("etcd "+how+", for "+wait.String(), func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					release := make(chan struct{})
					first := protocols["HTTP"](t, on[0].storeOf(tenant()), func(error) {}, func(context.Context, string) bool {
						<-release
						return true
					})
					var done sync.WaitGroup
					defer done.Wait()
					done.Go(func() { first("k") })
					defer close(release)
					time.Sleep(time.Second)
					other := on[1].storeOf(tenant())
					open := func(wait time.Duration) ask {
						mw, err := idemhttp.Middleware(other, &idemhttp.Options{FailOpen: true, Wait: wait, StoreTimeout: 300 * time.Millisecond})
						require.NoError(t, err)
						return askHTTP(t, mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })))
					}
					refused := []string{inProgress, string(idemhttp.CodeUnavailable)}
					waits := make(chan reply, 1)
					go func() { waits <- open(wait)("k") }()
					time.Sleep(time.Second)
					away(on[1].client)
					require.Contains(t, refused, open(0)("k").code)
					require.Contains(t, refused, (<-waits).code)
				})
			})
		}
	}
}

// I01: what a handler answers after its process was cut off beyond the TTL, and another attempt has had
// another outcome, reaches no client, whether the process can reach etcd again or not: a success, and what would
// have been recorded, forgotten or left as lost. What was sent already is cut off.
func TestZombieThatIsCutOff(t *testing.T) {
	answers := map[string]func(http.ResponseWriter, *http.Request){
		"done":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the zombie's") },
		"refused":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPaymentRequired) },
		"later":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"forgotten": decided(idempotency.Forget, http.StatusPaymentRequired),
		"abandoned": decided(idempotency.Abandon, http.StatusInternalServerError),
		"success":   decided(idempotency.Forget, http.StatusOK),
		"stream": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "no ")
			w.(http.Flusher).Flush()
		},
	}
	for how, away := range aways {
		for end, back := range map[string]bool{"is back": true, "stays away": false} {
			t.Run("etcd "+how+", and "+end, func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					release := make(chan struct{})
					mw, err := idemhttp.Middleware(on[0].storeOf(tenant()), nil)
					require.NoError(t, err)
					a := askHTTP(t, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						<-r.Context().Done()
						<-release
						answers[r.Header.Get("Idempotency-Key")](w, r)
					})))
					second := 0
					b := protocols["HTTP"](t, on[1].storeOf(tenant()), func(error) {}, func(context.Context, string) bool {
						second++
						return true
					})
					var zombies sync.WaitGroup
					for name := range answers {
						zombies.Go(func() {
							re := a(name)
							if name == "stream" {
								if !re.aborted {
									t.Error("a whole answer:", re)
								}
							} else if re.code != inProgress || !re.retry {
								t.Error(name, re)
							}
						})
					}
					time.Sleep(time.Second)
					away(on[0].client)
					time.Sleep(ttl)
					for name := range answers {
						re := b(name)
						require.True(t, re.done && !re.replayed, name)
					}
					if back {
						on[0].client.Heal()
					}
					close(release)
					zombies.Wait()
					for name := range answers {
						re := b(name)
						require.True(t, re.done && re.replayed, name)
					}
					require.Len(t, answers, second)
				})
			})
		}
	}
}

// decided is a handler that decides what is done with its answer.
func decided(what idempotency.Action, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		idemhttp.Decide(r.Context(), what)
		w.WriteHeader(code)
	}
}
