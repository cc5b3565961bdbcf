package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Callers that wait for many keys at once, each with a watch of its own, outlive a connection or a
// stream that breaks: the session keeps its lease while all watches are created anew, and no release is
// missed.
func TestKeyedLimiterWaitersOutliveTheirWatches(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd's client takes seconds to reconnect")
	}
	t.Parallel()
	for name, fail := range map[string]func(testing.TB, *embedtest.Client) (mend func()){
		"the connection": func(t testing.TB, c *embedtest.Client) func() {
			c.Cut()
			require.Eventually(t, func() bool { return len(c.OpenStreams()) == 0 }, soon, tick)
			return c.Heal
		},
		"the stream": func(t testing.TB, c *embedtest.Client) func() {
			broken := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCInvalidAuthToken})
			return func() { require.NoError(t, broken.WaitHit(ctxT(t))) } // the next event ends it
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys = 500
			f, ctx := own(t, 1), ctxT(t)
			// A thousand calls at once keep a busy machine for longer than a short TTL lasts.
			s, c := f.Session(&concurrency.SessionOptions{TTL: time.Minute, MaxPermits: 2 * keys})
			other, _ := f.Session(&concurrency.SessionOptions{TTL: time.Minute, MaxPermits: 2 * keys})
			lease := s.Lease()
			lim, there := keyed(t, s, "llm", 1), keyed(t, other, "llm", 1)
			theirs, ours := make([]*concurrency.Permit, keys), make([]<-chan answer, keys)
			each(t, keys, func(i int) (err error) { theirs[i], err = there.Key(nthKey("k", i)).Acquire(ctx); return err })
			for i := range ours {
				ours[i] = ask2(ctx, lim.Key(nthKey("k", i)))
			}
			require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2*keys && c.Requests()["Watch.Send"] > keys }, soon, 10*tick)
			before := c.Requests()
			mend := fail(t, c)
			each(t, keys/2, func(i int) error { return theirs[i].Release(ctx) })
			mend()
			each(t, keys/2, func(i int) error { return granted(t, ours[i], "released while nothing was watched").Release(ctx) })
			each(t, keys/2, func(i int) error { return theirs[keys/2+i].Release(ctx) })
			each(t, keys/2, func(i int) error { return granted(t, ours[keys/2+i], "released later").Release(ctx) })
			require.Equal(t, lease, s.Lease(), "the session has kept its lease")
			after := c.Requests()
			t.Logf("%d watches were created again, on %d streams, with %d lists", after["Watch.Send"]-before["Watch.Send"], after["Watch"]-before["Watch"], after["Range"]-before["Range"])
			f.NoKeys("/queue/")
		})
	}
}
