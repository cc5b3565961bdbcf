package concurrency_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var done = func() context.Context { ctx, cancel := context.WithCancel(context.Background()); cancel(); return ctx }()

// leftNothing asserts that neither etcd nor the client has anything of a closed
// session's.
func (f fixture) leftNothing(c *embedtest.Client) {
	f.T.Helper()
	require.Empty(f.T, f.Keys("/session/"))
	require.Empty(f.T, f.Keys("/queue/"))
	// F11: nor is a lease renewed that has no session.
	require.Eventually(f.T, func() bool { return len(c.OpenStreams()) == 0 }, soon, 5*time.Millisecond, "streams: %v", c.OpenStreams())
}

// Close refuses new and waiting work at once, and waits for those who hold.
func TestCloseWaitsForHolders(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	mu := mutex(t, s, "x")
	p := lock(t, s, "x")
	waiting := make(chan error, 1)
	go func() { _, err := mu.Lock(ctxT(t)); waiting <- err }()
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, 5*time.Millisecond)

	closing := make(chan error, 1)
	go func() { closing <- s.Close(ctxT(t)) }()
	require.ErrorIs(t, got(t, waiting, "the waiter is sent away"), concurrency.ErrClosed)
	_, err := mu.Lock(ctxT(t))
	require.ErrorIs(t, err, concurrency.ErrClosed)
	_, err = mu.TryLock(ctxT(t))
	require.ErrorIs(t, err, concurrency.ErrClosed)
	_, err = concurrency.NewMutex(s, "y")
	require.ErrorIs(t, err, concurrency.ErrClosed)
	_, err = mu.Status(ctxT(t))
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.NoError(t, p.Err(), "the holder keeps its permit")
	require.Empty(t, closing)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, got(t, closing, "Close returns"))
	require.Zero(t, s.Lease())
	f.leftNothing(c)
}

// When its ctx ends, Close ends the permits that are held. It revokes the lease
// even with a ctx that had ended before (F16), so that others need not wait.
func TestCloseEndsHolders(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	p := lock(t, s, "x")
	require.ErrorIs(t, s.Close(done), context.Canceled)
	f.leftNothing(c)
	lostBy(t, p, concurrency.ErrClosed)
	next, _ := f.Session(nil)
	require.NoError(t, lock(t, next, "x").Release(ctxT(t)))
}

// F16: without holders, a dead ctx is no reason to fail.
func TestCloseWithDeadCtx(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for range 20 {
		s, c := f.Session(nil)
		require.NoError(t, lock(t, s, "x").Release(ctxT(t)))
		require.NoError(t, s.Close(done))
		f.leftNothing(c)
	}
}

// F19: a lease that is gone already needs no revoking.
func TestCloseAfterRevocation(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	inj := c.Inject(embedtest.Fault{Method: "LeaseRevoke", Do: embedtest.DropResponse})
	require.NoError(t, s.Close(ctxT(t)))
	require.Equal(t, 1, inj.Hits())
	f.leftNothing(c)
}

// Close may be called again, by any goroutine at any time. The first ctx that ends, of
// whichever call, ends the wait for holders; all calls return the same.
func TestCloseTwice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	lock(t, s, "x")
	results := make(chan error, 8)
	for range 7 {
		go func() { results <- s.Close(context.Background()) }()
	}
	require.Eventually(t, func() bool { _, err := concurrency.NewMutex(s, "y"); return err != nil }, soon, 5*time.Millisecond)
	require.Empty(t, results)
	results <- s.Close(done)
	for range 8 {
		require.ErrorIs(t, got(t, results, "Close returns"), context.Canceled)
	}
	require.ErrorIs(t, s.Close(context.Background()), context.Canceled)
	f.leftNothing(c)
}

// Close is bounded while etcd is out of reach. What it cannot say there expires.
func TestCloseWithoutEtcd(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*embedtest.Client){"cut": (*embedtest.Client).Cut, "black hole": (*embedtest.Client).BlackHole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			s, c := f.Session(quick())
			lock(t, s, "x")
			strike(c)
			begun := time.Now()
			err := s.Close(done)
			require.ErrorContains(t, err, "left to expire")
			require.Less(t, time.Since(begun), soon)
			f.NoKeys("/session/")
		})
	}
}

// F19: the lease ends by its deadline while Close waits for a holder. To etcd, which is out of reach, it is alive: what
// was held is free only once it expires there, and Close reports that.
func TestCloseOfALostLeaseWithoutEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(quick())
	held := lock(t, s, "x")
	c.Cut()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	<-held.Context().Done()
	require.ErrorIs(t, context.Cause(held.Context()), concurrency.ErrLost)
	require.ErrorContains(t, got(t, closed, "Close returns"), "left to expire")
}

// F48: the client is closed under the session. Permits end, calls fail, nothing
// hangs, and Close says if the lease could not be revoked.
func TestClientClosedUnderSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(quick())
	p := lock(t, s, "x")
	mu := mutex(t, s, "x")
	waiting := make(chan error, 1)
	go func() { _, err := mu.Lock(context.Background()); waiting <- err }()
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, 5*time.Millisecond)
	require.NoError(t, c.Close())
	lostBy(t, p, concurrency.ErrClosed)
	require.ErrorIs(t, got(t, waiting, "the waiter returns"), concurrency.ErrClosed)
	_, err := mu.Lock(context.Background())
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorContains(t, err, "etcd client is closed") // A631: one looked for a Close of the session
	require.Eventually(t, func() bool { return s.Lease() == 0 }, soon, 5*time.Millisecond)
	if err := s.Close(context.Background()); err == nil { // the revocation was sent just before the connection was closed
		require.Empty(t, f.Keys("/session/"))
	} else {
		require.ErrorContains(t, err, "the client was closed, or its Config.Context ended, before its session")
	}
	f.NoKeys("/session/")
}

// A754: the end of the client's Config.Context, such as one that a signal ends, ends its sessions, and Close names it.
func TestClientsContextEnds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := f.NewClient(t, &embedtest.ClientOptions{Configure: func(c *clientv3.Config) { c.Context = ctx }})
	s := f.SessionOn(c.Client, quick())
	p := lock(t, s, "x")
	cancel()
	lostBy(t, p, concurrency.ErrClosed)
	require.ErrorContains(t, s.Close(context.Background()), "the client was closed, or its Config.Context ended, before its session")
}

// L6: a session that is closed just after it lost its lease still revokes it:
// the next one does not meet its ghost.
func TestTrapL6CloseAfterLoss(t *testing.T) {
	t.Parallel()
	f := shared(t)
	opts, reported := traced(nil)
	s, c := f.Session(opts)
	p := lock(t, s, "x")
	old := s.Lease()
	inj := c.Inject(embedtest.Fault{Method: "LeaseRevoke", Do: embedtest.FailWith, Times: 3})
	_, err := f.Client().Delete(ctxT(t), f.Keys("/alive")[0])
	require.NoError(t, err)
	closed(t, p.Context().Done(), "the permit is lost")
	got(t, reported.lost, "SessionLost")
	require.NoError(t, s.Close(ctxT(t)))
	require.Equal(t, 3, inj.Hits())
	ttl, err := f.Client().TimeToLive(ctxT(t), old)
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL)
	f.leftNothing(c)
}

// Close meets everything else at once: calls, releases, losses, new leases. It
// returns, and nothing is left.
func TestCloseRaces(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for range 25 {
		s, c := f.Session(nil)
		sm := sem(t, s, "x", 3)
		require.NoError(t, sm.SetLimit(ctxT(t), 3, concurrency.CreateLimit()))
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for {
					p, err := sm.Acquire(ctxT(t), concurrency.MaxHold(time.Duration(1+i)*time.Millisecond))
					if err != nil {
						if !errorsIs(err, concurrency.ErrClosed) {
							t.Error(err)
						}
						return
					}
					time.Sleep(rand.N(3 * time.Millisecond))
					_ = p.Release(ctxT(t))
				}
			})
		}
		wg.Go(func() {
			for lease := s.Lease(); lease != 0 && rand.IntN(3) > 0; lease = s.Lease() {
				_, _ = f.Client().Revoke(ctxT(t), lease)
				time.Sleep(rand.N(5 * time.Millisecond))
			}
		})
		time.Sleep(rand.N(15 * time.Millisecond))
		ctx, cancel := context.WithTimeout(ctxT(t), rand.N(20*time.Millisecond))
		begun := time.Now()
		_ = s.Close(ctx)
		cancel()
		require.Less(t, time.Since(begun), soon)
		wg.Wait()
		f.NoKeys("/queue/")
		f.NoKeys("/session/")
		require.Eventually(t, func() bool { return len(c.OpenStreams()) == 0 }, soon, 5*time.Millisecond)
	}
}

// Hooks may take their time: no context of a permit ends later because of them.
func TestSlowHooksDelayNoLoss(t *testing.T) {
	t.Parallel()
	f := shared(t)
	gate := make(chan struct{})
	reported := make(chan string, 100)
	slow := func(what string) { reported <- what; <-gate }
	opts := &concurrency.SessionOptions{Hooks: testkit.Trace{
		Lost:           func(*concurrency.LostError) { slow("lost") },
		SessionRenewed: func(clientv3.LeaseID) { slow("renewed") },
	}.Hooks()}
	s, _ := f.Session(opts)
	sm := sem(t, s, "x", 5)
	var held []*concurrency.Permit
	for range 5 {
		p, err := sm.Acquire(ctxT(t))
		require.NoError(t, err)
		held = append(held, p)
	}
	require.NoError(t, f.RevokeLease(ctxT(t), s.Lease()))
	for _, p := range held {
		closed(t, p.Context().Done(), "each context ends")
		require.ErrorIs(t, p.Err(), concurrency.ErrLost)
	}
	require.Equal(t, "lost", got(t, reported, "the hook runs"))
	// The session has a new lease; its hook takes time as well.
	p, err := sm.Acquire(ctxT(t))
	require.NoError(t, err)
	require.Equal(t, "renewed", got(t, reported, "the hook runs"))
	require.NoError(t, f.RevokeLease(ctxT(t), s.Lease()))
	closed(t, p.Context().Done(), "its context ends while the hook runs")
	close(gate)
}

// What a session is asked without a deadline ends with it, with etcd away, too.
func TestCloseEndsQuestions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	c.BlackHole()
	answers := make(chan error, 4)
	forever := context.Background()
	go func() { _, err := sm.Status(forever); answers <- err }()
	go func() { answers <- sm.SetLimit(forever, 2) }()
	go func() { answers <- sm.Evict(forever, "i", "") }()
	go func() { answers <- sm.EvictToken(forever, 1, "") }()
	_ = s.Close(ctx)
	for range 4 {
		require.ErrorIs(t, got(t, answers, "the session is closed"), concurrency.ErrClosed)
	}
}
