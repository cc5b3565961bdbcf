package concurrency_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/observe"
)

// stuckHooks are hooks that do not return from the time on at which stuck is set, until end is closed.
func stuckHooks(stuck *atomic.Bool, end <-chan struct{}) *concurrency.SessionOptions {
	wait := func() {
		if stuck.Load() {
			<-end
		}
	}
	return &concurrency.SessionOptions{ReportEvery: time.Millisecond, Hooks: []observe.Hooks{{
		Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) {
			wait()
			return nil, func(observe.Outcome) { wait() }
		},
		Event: func(context.Context, observe.Event) { wait() },
	}}}
}

// A348: hooks that do not return hold up neither the end of what is held nor the revocation of the lease, and Close returns
// after its deadline all the same.
func TestCloseWithStuckHooks(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t *testing.T, f fixture, s *concurrency.Session, c *embedtest.Client, stick func()){
		"idle": func(_ *testing.T, _ fixture, _ *concurrency.Session, _ *embedtest.Client, stick func()) { stick() },
		"held": func(t *testing.T, _ fixture, s *concurrency.Session, _ *embedtest.Client, stick func()) {
			p := lock(t, s, "x")
			stick()
			t.Cleanup(func() { lostBy(t, p, concurrency.ErrClosed) })
		},
		"waiting": func(t *testing.T, f fixture, s *concurrency.Session, _ *embedtest.Client, stick func()) {
			other, _ := f.Session(nil)
			lock(t, other, "x")
			go func() { _, _ = mutex(t, s, "x").Lock(ctxT(t)) }()
			require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, 5*time.Millisecond)
			stick()
		},
		"a term whose key is deleted": func(t *testing.T, f fixture, s *concurrency.Session, _ *embedtest.Client, stick func()) {
			el, err := concurrency.NewElection(s, "x")
			require.NoError(t, err)
			p, err := el.Campaign(ctxT(t))
			require.NoError(t, err)
			stick()
			for _, key := range f.Keys("/queue/") {
				_, err := f.Client().Delete(ctxT(t), key)
				require.NoError(t, err)
			}
			closed(t, p.Context().Done(), "it is lost")
		},
		"evicted": func(t *testing.T, f fixture, s *concurrency.Session, _ *embedtest.Client, stick func()) {
			p := lock(t, s, "x")
			stick()
			other, _ := f.Session(nil)
			require.NoError(t, mutex(t, other, "x").EvictToken(ctxT(t), p.Token(), ""))
			closed(t, p.Context().Done(), "it is lost")
		},
		"a release without an answer": func(t *testing.T, _ fixture, s *concurrency.Session, c *embedtest.Client, stick func()) {
			p := lock(t, s, "x")
			inj := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldResponse, Times: -1})
			ctx, cancel := context.WithCancel(ctxT(t))
			released := make(chan error, 1)
			go func() { released <- p.Release(ctx) }()
			require.NoError(t, inj.WaitHit(ctxT(t)))
			cancel()
			require.Error(t, got(t, released, "Release returns"))
			stick()
			require.NoError(t, inj.Release())
		},
		"a rate": func(t *testing.T, _ fixture, s *concurrency.Session, _ *embedtest.Client, stick func()) { // A375
			l, err := concurrency.NewRateLimiter(s, "x", concurrency.Rate{PerSecond: 100, Burst: 10}, nil)
			require.NoError(t, err)
			require.NoError(t, l.Wait(ctxT(t)))
			stick()
		},
		"a lost lease": func(t *testing.T, f fixture, s *concurrency.Session, _ *embedtest.Client, stick func()) {
			p := lock(t, s, "x")
			stick()
			require.NoError(t, f.RevokeLease(ctxT(t), s.Lease()))
			closed(t, p.Context().Done(), "it is lost")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			var stuck atomic.Bool
			end := make(chan struct{})
			s, c := f.Session(stuckHooks(&stuck, end))
			defer close(end)
			use(t, f, s, c, func() { stuck.Store(true) })
			lease := s.Lease()
			shut := make(chan error, 1)
			go func() { shut <- s.Close(done) }()
			err := got(t, shut, "Close returns")
			require.ErrorContains(t, err, "has not returned")
			resp, err := f.Client().TimeToLive(ctxT(t), lease)
			require.NoError(t, err)
			require.Less(t, resp.TTL, int64(1), "the lease is revoked")
		})
	}
}
