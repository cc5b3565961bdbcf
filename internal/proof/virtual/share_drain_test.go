package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// TestShareDrainsAPermit: a request that has asked before the outage, and is granted the last permit
// after it, does not keep that from work under the share: it asks again when that work has one.
func TestShareDrainsAPermit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"handler", "outgoing"} {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			end := make(chan struct{})
			finish := sync.OnceFunc(func() { close(end) })
			defer finish()
			flow := concurrency.ID("flow")
			other := services(on[1:], limithttp.Share, new(peak), nil)[0]
			patience := func(o *limithttp.Options) { o.Wait, o.Patience = time.Hour, time.Hour }
			s, patient := services(on[:1], limithttp.Share, new(peak), each(flow))[0], services(on[:1], limithttp.Share, new(peak), patience)[0]
			s.slow = func(*http.Request) { <-end }
			call := map[string]func(string) int{
				"handler":  func(tenant string) int { return patient.get(context.Background(), tenant) },
				"outgoing": s.transport(patience),
			}[kind]
			require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
			time.Sleep(time.Minute)
			var held []*concurrency.Permit
			take := func(tenant string, opts ...concurrency.AcquireOption) {
				p, err := other.lim.Key(tenant).Acquire(context.Background(), opts...)
				assert.NoError(t, err)
				held = append(held, p)
			}
			take("slow", flow)
			inTheWay := held[0] // of the work's permit
			for range total - 2 {
				take("b")
			}
			s.client.Refuse()
			status := make(chan int, 1)
			go func() { status <- call("patient") }()
			s.cutOff()
			running := s.without("slow")
			s.client.Heal()
			time.Sleep(10 * time.Second)
			var last sync.WaitGroup
			last.Go(func() { take("b") })
			time.Sleep(time.Second)
			require.NoError(t, inTheWay.Release(t.Context()))
			last.Wait()
			time.Sleep(10 * time.Second)
			require.Zero(t, s.share().Running, "the work has its permit: %s", kind)
			require.Empty(t, status)
			finish()
			require.Equal(t, http.StatusOK, <-running)
			require.Equal(t, http.StatusOK, <-status)
			require.Zero(t, patient.early.Load())
			for _, p := range held[1:] {
				require.NoError(t, p.Release(t.Context()))
			}
		})
	}
}

// A503: a request that waits until work under the share has a permit ends when the session is closed.
func TestShareDrainEndsWithTheSession(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		end := make(chan struct{})
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		flow := concurrency.ID("flow")
		other := services(on[1:], limithttp.Share, new(peak), nil)[0]
		s, patient := services(on[:1], limithttp.Share, new(peak), each(flow))[0], services(on[:1], limithttp.Share, new(peak), func(o *limithttp.Options) { o.Wait = time.Hour })[0]
		s.slow = func(*http.Request) { <-end }
		require.Equal(t, http.StatusOK, s.get(t.Context(), "a"))
		time.Sleep(time.Minute)
		inTheWay, err := other.lim.Key("slow").Acquire(t.Context(), flow)
		require.NoError(t, err)
		s.client.Refuse()
		s.cutOff()
		running := s.without("slow")
		s.client.Heal()
		time.Sleep(10 * time.Second)
		status := make(chan int, 1)
		go func() { status <- patient.get(context.Background(), "patient") }()
		time.Sleep(10 * time.Second)
		require.Empty(t, status, "it waits for the work's permit")
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			on[0].close(time.Second)
		}()
		begun := time.Now()
		require.Equal(t, http.StatusServiceUnavailable, <-status)
		require.Zero(t, time.Since(begun))
		finish()
		require.Equal(t, http.StatusOK, <-running)
		<-closed
		require.NoError(t, inTheWay.Release(t.Context()))
	})
}

// transport returns what sends a request through a Transport of the service's limiter.
func (s *service) transport(change func(*limithttp.Options)) func(tenant string) int {
	s.t.Helper()
	o := limithttp.Options{Key: func(r *http.Request) (string, bool) { return r.Header.Get("Tenant"), true }, Outage: limithttp.Share}
	change(&o)
	rt, err := limithttp.Transport(s.lim, o, replies{})
	require.NoError(s.t, err)
	return func(tenant string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Tenant", tenant)
		resp, err := rt.RoundTrip(r)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
}

// replies is a RoundTripper that answers at once.
type replies struct{}

func (replies) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}
