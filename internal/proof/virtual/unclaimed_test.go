package virtual

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// A714: under FailOpen, duplicates in one process ran at the same time: the second one waits for the run without a claim as for
// an attempt. After its end a duplicate runs again.
func TestNoTwoRunsWithoutAClaimAtOnce(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 2 * time.Second} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			var inside, most, runs atomic.Int64
			handler := d.behind(&idemhttp.Options{FailOpen: true, Wait: wait}, func(w http.ResponseWriter, r *http.Request) {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				runs.Add(1)
				time.Sleep(10 * time.Second)
				created(w, r)
			})
			d.client.Stall()
			var all sync.WaitGroup
			answers := make([]timed, 4)
			for n, at := range []time.Duration{0, 0, time.Second, 7 * time.Second} {
				all.Go(func() {
					time.Sleep(at)
					answers[n] = post(handler, "K-1")
				})
			}
			all.Wait()
			require.EqualValues(t, 1, runs.Load())
			ran := 0
			for n, a := range answers {
				switch {
				case a.status == http.StatusCreated:
					ran++
				case n < 2 && a.status == http.StatusServiceUnavailable: // both gave up at the same time
				default:
					require.Equal(t, http.StatusConflict, a.status, n)
				}
			}
			require.Equal(t, 1, ran)
			require.LessOrEqual(t, answers[3].took, wait)

			require.Equal(t, http.StatusCreated, post(handler, "K-1").status)
			require.EqualValues(t, 2, runs.Load())
			require.EqualValues(t, 1, most.Load())

			d.client.Heal()
			time.Sleep(10 * time.Second)
			require.Equal(t, http.StatusCreated, post(handler, "K-1").status, "an attempt")
			require.Equal(t, http.StatusCreated, post(handler, "K-1").status, "a replay")
			require.EqualValues(t, 3, runs.Load())
		})
	}
}

// A716: a run without a claim whose handler ignores its context kept duplicates from the request for ever, also when etcd was
// back. When the margin has passed after MaxExecution a duplicate begins an attempt; without etcd it does not run beside the
// first.
func TestRunWithoutAClaimThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		var runs atomic.Int64
		free, done := make(chan struct{}), make(chan timed, 1)
		handler := d.behind(&idemhttp.Options{FailOpen: true, Each: func(*http.Request) []idempotency.Option {
			return []idempotency.Option{idempotency.MaxExecution(time.Minute)}
		}}, func(w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) == 1 {
				<-free
			}
			created(w, r)
		})
		begun := time.Now()
		until := func(after time.Duration) { time.Sleep(time.Until(begun.Add(after))) }
		d.client.Stall()
		go func() { done <- post(handler, "K-1") }()
		over := 5*time.Second + time.Minute + margin // StoreTimeout comes first
		until(over - time.Millisecond)
		require.Equal(t, http.StatusConflict, post(handler, "K-1").status)
		until(over + time.Millisecond)
		require.Equal(t, http.StatusServiceUnavailable, post(handler, "K-1").status, "etcd is away")
		require.EqualValues(t, 1, runs.Load())
		d.client.Heal()
		time.Sleep(10 * time.Second)
		require.Equal(t, http.StatusCreated, post(handler, "K-1").status, "an attempt")
		require.Equal(t, http.StatusCreated, post(handler, "K-1").status, "a replay")
		require.EqualValues(t, 2, runs.Load())
		close(free)
		require.Equal(t, http.StatusCreated, (<-done).status)
	})
}

// A714: a second Middleware of the store behind the first one does not wait for the run of the first.
func TestRunWithoutAClaimWithinItself(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		store := d.store()
		mw, err := idemhttp.Middleware(store, &idemhttp.Options{FailOpen: true, Scope: func(*http.Request) string { return "tenant" }})
		require.NoError(t, err)
		var within, after context.Context
		handler := mw(mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { within = r.Context(); created(w, r) })))
		d.client.Stall()
		a := post(handler, "K-1")
		require.Equal(t, http.StatusCreated, a.status)
		require.Equal(t, 5*time.Second, a.took)
		after = within
		require.False(t, idempotency.Within(after, store, idempotency.Key{Scope: "tenant", Op: "POST /payments", ID: "K-1"}), "it has ended")
	})
}

// sends records the keys of what it is sent, and answers 500.
type sends struct{ keys []string }

func (s *sends) RoundTrip(r *http.Request) (*http.Response, error) {
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// A712: a run under FailOpen, its repetition and the claimed run after the outage send a provider one key, also for what a loop
// in the handler sends again: each had a new random key, so the provider charged each time.
func TestOneKeyWithAndWithoutAClaim(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		provider := &sends{}
		client := &http.Client{Transport: &idemhttp.Transport{Base: provider}}
		var children []string
		claimed := 0
		handler := d.behind(&idemhttp.Options{FailOpen: true}, func(w http.ResponseWriter, r *http.Request) {
			a, ok := idempotency.FromContext(r.Context())
			if ok {
				claimed++
			}
			children = append(children, a.ChildKey("charge"))
			for _, ctx := range []context.Context{r.Context(), idemhttp.Client(r.Context()), idemhttp.WithNewKey(r.Context())} {
				for range 2 {
					out, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider/charges", strings.NewReader(`{"amount":17}`))
					require.NoError(t, err)
					out.Header.Set("Content-Type", "application/json")
					resp, err := client.Do(out)
					require.NoError(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					require.NoError(t, resp.Body.Close())
				}
			}
			created(w, r)
		})
		d.client.Stall()
		require.Equal(t, http.StatusCreated, post(handler, "K-1").status)
		require.Equal(t, http.StatusCreated, post(handler, "K-1").status)
		require.Zero(t, claimed)
		d.client.Heal()
		time.Sleep(10 * time.Second)
		require.Equal(t, http.StatusCreated, post(handler, "K-1").status)
		require.Equal(t, 1, claimed)
		require.Equal(t, []string{children[0], children[0], children[0]}, children)
		require.Len(t, provider.keys, 18)
		for _, key := range provider.keys {
			require.Equal(t, provider.keys[0], key)
		}
		require.Equal(t, http.StatusCreated, post(handler, "K-2").status)
		require.NotEqual(t, children[0], children[3])
		require.NotEqual(t, provider.keys[0], provider.keys[18])
	})
}

// A713: a handler without a claim does not end with its client, and has MaxExecution, as in an attempt: it had what was left of
// the client's deadline, and was cut off in the middle.
func TestRunWithoutAClaimOutlivesItsClient(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		type key struct{}
		const execution = time.Minute
		entered, over := make(chan struct{}), make(chan error, 1)
		handler := d.behind(&idemhttp.Options{FailOpen: true, Each: func(*http.Request) []idempotency.Option {
			return []idempotency.Option{idempotency.MaxExecution(execution)}
		}}, func(w http.ResponseWriter, r *http.Request) {
			ctx, begun := r.Context(), time.Now()
			defer func() { over <- context.Cause(ctx) }() // also after a failed check
			close(entered)
			client := idemhttp.Client(ctx)
			<-client.Done()
			require.NoError(t, ctx.Err())
			require.Equal(t, "kept", ctx.Value(key{}))
			require.Equal(t, "kept", client.Value(key{}))
			require.Empty(t, r.Header.Get("Grpc-Timeout"))
			require.False(t, idemhttp.Decide(ctx, idempotency.Forget), "nothing is recorded")
			a, ok := idempotency.FromContext(ctx)
			require.False(t, ok)
			require.ErrorIs(t, a.Err(), idempotency.ErrInvalid)
			_, err := idempotency.Step(a, "one", func(context.Context) (int, error) { t.Error("it runs"); return 0, nil })
			require.ErrorIs(t, err, idempotency.ErrInvalid)
			require.Zero(t, a.Ref())
			<-ctx.Done()
			require.Equal(t, execution, time.Since(begun))
			created(w, r)
		})
		d.client.Stall()
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", "K-1")
		r.Header.Set("Grpc-Timeout", "2S")
		go handler.ServeHTTP(httptest.NewRecorder(), r)
		<-entered
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-over, idempotency.ErrTooLong)
	})
}

// A713: a handler without a claim ends when the permit is lost under which it runs, as in an attempt: another request may have
// the permit.
func TestRunWithoutAClaimUnderAPermit(t *testing.T) {
	t.Parallel()
	for _, detached := range []bool{false, true} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			ctx := d.acquire().Context()
			if detached {
				ctx = context.WithoutCancel(ctx)
			}
			var cause error
			handler := d.behind(&idemhttp.Options{FailOpen: true, StoreTimeout: time.Second}, func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, r.Context().Err())
				<-r.Context().Done()
				cause = context.Cause(r.Context())
				created(w, r)
			})
			d.client.Stall()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", strings.NewReader("body"))
			r.Header.Set("Idempotency-Key", "K-1")
			handler.ServeHTTP(httptest.NewRecorder(), r)
			lost, ok := errors.AsType[*concurrency.LostError](cause)
			require.True(t, ok, "%v", cause)
			require.ErrorIs(t, lost, concurrency.ErrLost)
		})
	}
}

// A713: so it is for a call of gRPC with a deadline.
func TestCallWithoutAClaimOutlivesItsClient(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		interceptor, err := idemgrpc.UnaryServerInterceptor(d.store(), &idemgrpc.Options{FailOpen: true, Scope: func(context.Context) string { return "tenant" }})
		require.NoError(t, err)
		d.client.Stall()
		ctx := metadata.NewIncomingContext(within(t, 7*time.Second), metadata.Pairs("idempotency-key", "K-1"))
		sent, runs := time.Now(), 0
		_, err = interceptor(ctx, &emptypb.Empty{}, &grpc.UnaryServerInfo{FullMethod: "/pay.Payments/Charge"}, func(ctx context.Context, _ any) (any, error) {
			runs++
			<-idemgrpc.Client(ctx).Done()
			require.Equal(t, 7*time.Second, time.Since(sent))
			require.NoError(t, ctx.Err())
			_, ok := idempotency.FromContext(ctx)
			require.False(t, ok)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), idempotency.ErrTooLong)
			return nil, idempotency.NothingDone(grpcstatus.Error(codes.Internal, "planned"))
		})
		require.Equal(t, 1, runs)
		require.Equal(t, 5*time.Second+15*time.Minute, time.Since(sent))
		require.Equal(t, "rpc error: code = Internal desc = planned", err.Error(), "without the word for an interceptor")
	})
}

// A715: that a request runs without a claim is counted, reported to hooks and to ReportError, and logged once a minute. Nothing
// told it from a 503.
func TestRunsWithoutAClaimAreReported(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, server *etcdfake.Server) {
		var hooks testkit.Recorder
		core, logs := observer.New(zap.WarnLevel)
		client := server.NewClient()
		sess, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{TTL: ttl, Margin: margin, Prefix: prefix, Hooks: hooks.Hooks(), Logger: zap.New(core)})
		require.NoError(t, err)
		d := &desk{t: t, server: server, client: client, session: sess}
		defer d.close(time.Second)
		store := d.store()
		var reported []error
		mw, err := idemhttp.Middleware(store, &idemhttp.Options{FailOpen: true, Scope: func(*http.Request) string { return "tenant" }, ReportError: func(_ *http.Request, err error) {
			reported = append(reported, err)
		}})
		require.NoError(t, err)
		handler := mw(http.HandlerFunc(created))
		require.Equal(t, http.StatusCreated, post(handler, "K-0").status)
		client.Stall()
		for range 3 {
			require.Equal(t, http.StatusCreated, post(handler, "K-1").status)
		}
		require.EqualValues(t, 3, store.Stats().Unclaimed)
		require.Len(t, reported, 3)
		for _, err := range reported {
			require.ErrorIs(t, err, idempotency.ErrUnseen)
			require.ErrorContains(t, err, "the handler runs without a claim (Options.FailOpen): idempotency: begin")
		}
		events := slices.DeleteFunc(hooks.Said("store"), func(s testkit.Said) bool { return s.Text != "Unclaimed" })
		require.Len(t, events, 3)
		event := events[0].Event.(observe.Unclaimed)
		require.Equal(t, observe.Execute, event.Op)
		require.Equal(t, "POST /payments", event.Operation)
		require.ErrorIs(t, event.Err, idempotency.ErrUnseen)
		said := func() int { return logs.FilterMessage("handlers run without a claim (FailOpen)").Len() }
		require.Equal(t, 1, said())
		time.Sleep(time.Minute)
		require.Equal(t, http.StatusCreated, post(handler, "K-1").status)
		require.Equal(t, 2, said())
	})
}
