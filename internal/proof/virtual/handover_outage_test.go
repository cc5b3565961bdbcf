package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// A697: in an outage a permit passed from one request to another within the process, which ended the outage: OnOutage was
// called with nil, and the next one could not begin for Patience, although etcd answered nothing.
func TestHandoverIsNoAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		var changes []bool
		mw, err := limithttp.Middleware(concurrency.Single(d.passing(1, time.Minute)), limithttp.Options{
			Key:  func(*http.Request) (string, bool) { return "all", true },
			Wait: time.Minute, Patience: time.Second, Outage: limithttp.Open, OnOutage: func(err error) { changes = append(changes, err != nil) },
		})
		require.NoError(t, err)
		ends := make(chan chan struct{}, 10)
		h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			end := make(chan struct{})
			ends <- end
			<-end
		}))
		var all sync.WaitGroup
		serve := func(ctx context.Context) {
			all.Go(func() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			})
			synctest.Wait()
		}
		serve(t.Context())
		first := <-ends
		serve(t.Context())
		time.Sleep(time.Second)
		d.client.Stall()
		// The waits look each 100 ms for how long etcd has been silent: the outage begins between two looks, and the permit passes
		// before the next one.
		leaves, cancel := context.WithTimeout(t.Context(), 2520*time.Millisecond)
		defer cancel()
		serve(leaves)
		time.Sleep(2540 * time.Millisecond)
		require.Equal(t, []bool{true}, changes)
		close(first)
		synctest.Wait()
		second := <-ends // the permit has passed
		require.Equal(t, []bool{true}, changes)
		d.client.Heal()
		close(second)
		all.Wait()
		time.Sleep(10 * time.Second)
		require.Equal(t, []bool{true, false}, changes)
	})
}

// A690: requests that may wait for two minutes waited that long when etcd fell silent, before the policy decided.
func TestOutageBeginsWithinALongWait(t *testing.T) {
	t.Parallel()
	for policy, want := range map[limithttp.Outage]int{limithttp.Closed: http.StatusServiceUnavailable, limithttp.Open: http.StatusOK} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			d := on[0]
			sem := d.passing(1, 0)
			mw, err := limithttp.Middleware(concurrency.Single(sem), limithttp.Options{
				Key:  func(*http.Request) (string, bool) { return "all", true },
				Wait: 2 * time.Minute, Patience: time.Second, Outage: policy,
			})
			require.NoError(t, err)
			var left error
			h := mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(10 * time.Second)
				left = r.Context().Err()
			}))
			_, err = sem.Acquire(t.Context())
			require.NoError(t, err)
			time.AfterFunc(5*time.Second, d.client.Stall)
			begun, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			took := time.Since(begun)
			require.Equal(t, want, w.Code)
			if policy == limithttp.Open {
				took -= 10 * time.Second
			}
			require.Less(t, took, 5*time.Second+ttl/3+2*time.Second)
			require.NoError(t, left)
			d.client.Heal()
		})
	}
}

// The same for a token of a rate.
func TestOutageBeginsWithinALongWaitForAToken(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		rate, err := concurrency.NewRateLimiter(d.session, "calls", concurrency.Rate{PerSecond: 10, Burst: 1}, nil)
		require.NoError(t, err)
		away := make(chan error, 10)
		mw, err := limithttp.Middleware(nil, limithttp.Options{
			Rate: rate, Wait: 2 * time.Minute, Patience: time.Second, Outage: limithttp.Open, OnOutage: func(err error) { away <- err },
		})
		require.NoError(t, err)
		h := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		get := func() time.Duration {
			begun, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, http.StatusOK, w.Code)
			return time.Since(begun)
		}
		get()
		d.client.Stall()
		time.Sleep(20 * time.Second)
		for len(away) == 0 {
			require.Less(t, get(), 10*time.Second)
		}
		require.Error(t, <-away)
		d.client.Heal()
	})
}
