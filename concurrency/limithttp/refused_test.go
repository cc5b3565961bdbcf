package limithttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// refusals are ways in which an outage ends and etcd, or the session, permits nothing. Until then the client is cut from
// etcd.
var refusals = map[string]func(t *testing.T, in instance){
	"no space": func(t *testing.T, in instance) {
		require.NoError(t, in.f.SetNoSpace(ctxT(t), true))
		in.client.Heal()
	},
	"a role that was taken away": func(_ *testing.T, in instance) {
		in.client.Inject(embedtest.Fault{Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		in.client.Heal()
	},
	"a lost lease, and no new one": func(t *testing.T, in instance) {
		in.client.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		require.NoError(t, in.f.RevokeLease(ctxT(t), in.sess.Lease()))
		in.client.Heal()
	},
	"a closed session": func(t *testing.T, in instance) { _ = in.sess.Close(ctxT(t)) },
}

// TestRefusalEndsOutage: under Open, an outage ends when etcd answers that it refuses the request (A256 in
// internal/proof/tested-failures.md): from then on no request runs without a permit or a token.
func TestRefusalEndsOutage(t *testing.T) {
	t.Parallel()
	for what, refuse := range refusals {
		for _, with := range []string{"limiter", "rate"} {
			t.Run(what+", "+with, func(t *testing.T) {
				t.Parallel()
				f := testkit.Shared(t)
				if what == "no space" {
					f = testkit.Own(t, 1)
				}
				in := on(f, &concurrency.SessionOptions{TTL: 300 * time.Second, ReleaseTimeout: time.Second}, 1)
				changes := make(chan bool, 100)
				open := func(o *limithttp.Options) {
					o.Outage, o.Patience, o.Wait = limithttp.Open, time.Millisecond, 100*time.Millisecond
					o.OnOutage = func(err error) { changes <- err != nil }
				}
				s := server{}
				if with == "rate" {
					s = in.serveBy(nil, options(open, rated(in.rate(ample))), ok)
				} else {
					s = in.serve(options(open), ok)
				}
				in.client.Cut()
				require.Eventually(t, func() bool { return s.get("acme").StatusCode == http.StatusOK }, soon, 10*time.Millisecond)
				require.True(t, testkit.Got(t, changes, "the outage begins"))
				refuse(t, in)
				refused := func() bool { return s.get("acme").StatusCode == http.StatusServiceUnavailable }
				require.Eventually(t, refused, soon, 50*time.Millisecond)
				if what != "a closed session" { // while requests come: without any, the session asks in their place
					require.Eventually(t, func() bool { s.get("acme"); return len(changes) > 0 }, soon, 50*time.Millisecond)
					require.False(t, <-changes, "the outage ends")
				}
				before := s.calls.Load()
				for range 5 {
					require.Equal(t, http.StatusServiceUnavailable, s.get("acme").StatusCode)
				}
				require.Equal(t, before, s.calls.Load())
				require.Empty(t, changes)
				in.client.Heal()
			})
		}
	}
}

// TestAnswerEndsOutage: under Open, an outage ends with an answer of etcd's by which a request is refused as well (A298 in
// internal/proof/tested-failures.md): as many keys are live as may be, its weight is above a limit that was lowered, or the
// limit is of a later release. What each request got for ever was that, and what did not ask passed.
func TestAnswerEndsOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limiter concurrency.KeyedLimiterOptions
		weight  int
		refuse  func(t *testing.T, by instance) // through another process
		status  int
	}{
		"as many keys as may be": {
			concurrency.KeyedLimiterOptions{MaxKeys: 1}, 1, func(_ *testing.T, by instance) { by.take("other") }, http.StatusServiceUnavailable,
		},
		"a weight above the limit": {
			concurrency.KeyedLimiterOptions{}, 2, func(t *testing.T, by instance) { require.NoError(t, by.SetDefault(ctxT(t), 1)) }, http.StatusInternalServerError,
		},
		"a limit of a later release": {
			concurrency.KeyedLimiterOptions{}, 1, func(t *testing.T, by instance) {
				keys := by.f.Keys("/tenants/default")
				require.Len(t, keys, 1)
				_, err := by.f.Client().Put(ctxT(t), keys[0], `{"v":99}`)
				require.NoError(t, err)
			}, http.StatusServiceUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testkit.Shared(t)
			in, by := on(f, &concurrency.SessionOptions{TTL: 300 * time.Second}, 2), on(f, &concurrency.SessionOptions{TTL: 300 * time.Second}, 2)
			lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 2, &c.limiter)
			require.NoError(t, err)
			changes := make(chan bool, 100)
			s := in.serveBy(lim, options(func(o *limithttp.Options) {
				o.Outage, o.Patience, o.Wait = limithttp.Open, time.Millisecond, time.Second
				o.OnOutage = func(err error) { changes <- err != nil }
				o.Each = func(*http.Request) []concurrency.AcquireOption {
					return []concurrency.AcquireOption{concurrency.Weight(c.weight)}
				}
			}), ok)
			away := false
			settles := func(is bool) func() bool { // while requests come
				return func() bool {
					s.get("acme")
					for len(changes) > 0 {
						require.Equal(t, !away, <-changes, "a begin and an end in turn")
						away = !away
					}
					return away == is
				}
			}
			require.Eventually(t, settles(false), soon, 10*time.Millisecond)
			by.holders("acme", 0)
			in.client.Cut()
			require.Eventually(t, settles(true), soon, 10*time.Millisecond)
			c.refuse(t, by)
			in.client.Heal()
			require.Eventually(t, settles(false), soon, 50*time.Millisecond)
			for range 5 {
				require.Equal(t, c.status, s.get("acme").StatusCode)
			}
			require.Empty(t, changes)
		})
	}
}
