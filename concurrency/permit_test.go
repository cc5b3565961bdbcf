package concurrency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func errorsIs(err, target error) bool { return errors.Is(err, target) }

// G4, F01, F06, F33, T22: whatever cuts a holder off, its permit's context ends
// before etcd deletes its key: all on one machine's clock. And when the network
// is whole again, neither permit nor key comes back.
func TestContextEndsBeforeKey(t *testing.T) {
	t.Parallel()
	pin := func(f fixture, member int) *embedtest.Client {
		return f.NewClient(f.T, &embedtest.ClientOptions{Endpoints: f.Endpoints()[member : member+1]})
	}
	keepAlive := func(f embedtest.Fault) func(fixture) (*embedtest.Client, func()) {
		return func(x fixture) (*embedtest.Client, func()) {
			c := x.NewClient(x.T, nil)
			f.Method, f.Times = "LeaseKeepAlive", -1
			return c, func() { c.Inject(f) }
		}
	}
	for name, tt := range map[string]struct {
		members int
		holder  func(f fixture) (c *embedtest.Client, strike func())
	}{
		"cut":        {1, func(f fixture) (*embedtest.Client, func()) { c := f.NewClient(f.T, nil); return c, c.Cut }},
		"black hole": {1, func(f fixture) (*embedtest.Client, func()) { c := f.NewClient(f.T, nil); return c, c.BlackHole }},
		"slow": {1, func(f fixture) (*embedtest.Client, func()) {
			c := f.NewClient(f.T, nil)
			return c, func() { c.Delay(4 * time.Second) }
		}},
		"answers lost":    {1, keepAlive(embedtest.Fault{Do: embedtest.DropResponse})},
		"answers stuck":   {1, keepAlive(embedtest.Fault{Do: embedtest.HoldResponse})},
		"requests stuck":  {1, keepAlive(embedtest.Fault{Do: embedtest.HoldRequest})},
		"renewals broken": {1, keepAlive(embedtest.Fault{Do: embedtest.FailWith})},
		"at a cut follower": {3, func(f fixture) (*embedtest.Client, func()) {
			leader, err := f.WaitLeader(ctxT(f.T))
			require.NoError(f.T, err)
			m := (leader + 1) % 3
			return pin(f, m), func() { require.NoError(f.T, f.CutPeers(m)) }
		}},
		"at a cut leader": {3, func(f fixture) (*embedtest.Client, func()) {
			leader, err := f.WaitLeader(ctxT(f.T))
			require.NoError(f.T, err)
			return pin(f, leader), func() { require.NoError(f.T, f.CutPeers(leader)) }
		}},
		"at a former leader": {3, func(f fixture) (*embedtest.Client, func()) {
			leader, err := f.WaitLeader(ctxT(f.T))
			require.NoError(f.T, err)
			return pin(f, leader), func() {
				require.NoError(f.T, f.MoveLeader(ctxT(f.T), (leader+1)%3))
				require.NoError(f.T, f.CutPeers(leader))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			if tt.members > 1 {
				if testing.Short() {
					t.Skip("it starts a cluster, and takes ten seconds")
				}
				f = own(t, tt.members)
			}
			c, strike := tt.holder(f)
			// The margin has room for a machine that stalls.
			opts, reported := traced(&concurrency.SessionOptions{TTL: 6 * time.Second, Margin: 3 * time.Second})
			s := f.SessionOn(c.Client, opts)
			p := lock(t, s, "x")
			key := f.Keys("/queue/")[0]
			deleted := make(chan time.Time, 1)
			watching := make(chan struct{})
			go func() {
				ctx, once := ctxT(t), sync.OnceFunc(func() { close(watching) })
				for ctx.Err() == nil { // a member without a leader ends the watch
					for r := range f.Client().Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRev(p.Token()), clientv3.WithCreatedNotify()) {
						once()
						for _, ev := range r.Events {
							if ev.Type == clientv3.EventTypeDelete {
								deleted <- time.Now()
								return
							}
						}
					}
				}
			}()
			closed(t, watching, "the key is watched")
			ended := make(chan time.Time, 1)
			context.AfterFunc(p.Context(), func() { ended <- time.Now() })
			strike()
			end := got(t, ended, "the permit's context ends")
			gone := got(t, deleted, "the key is deleted")
			t.Logf("%v before the key", gone.Sub(end))
			require.True(t, end.Before(gone), "the context ended %v after the key", end.Sub(gone))
			require.ErrorIs(t, p.Err(), concurrency.ErrLost)
			got(t, reported.lost, "SessionLost")
			c.Heal()
			require.ErrorIs(t, p.Release(ctxT(t)), concurrency.ErrLost)
			require.Empty(t, f.Keys("/queue/"))
		})
	}
}

// T32, F25: with etcd out of reach, Acquire and Release return when their ctx
// ends. The release continues by itself.
func TestReleaseHonoursCtx(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	p := lock(t, s, "x")
	c.BlackHole()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	require.ErrorIs(t, p.Release(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, p.Release(done), context.Canceled)
	_, err := mutex(t, s, "x").Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 4*time.Second)
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
	c.Heal()
	require.NoError(t, p.Release(ctxT(t)), "it has gone on")
	f.NoKeys("/queue/")
}

// T23: a release that its caller gave up on was applied all the same. It counts
// as one, not as a loss.
func TestGivenUpReleaseIsNoLoss(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(nil)
	p := lock(t, s, "x")
	inj := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldResponse})
	ctx, cancel := context.WithCancel(ctxT(t))
	go func() { _ = inj.WaitHit(ctx); cancel() }()
	require.ErrorIs(t, p.Release(ctx), context.Canceled)
	require.Empty(t, f.Keys("/queue/"), "it was applied")
	require.NoError(t, p.Release(ctxT(t)))
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
}

// A release with a ctx that has ended is a release.
func TestReleaseWithDeadCtx(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	p := lock(t, s, "x")
	if err := p.Release(done); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, lock(t, s, "x").Release(ctxT(t)))
	f.NoKeys("/queue/")
}

// Release meets loss, MaxHold, Close and itself. All callers get the same result, once it
// is over, and the permit is not held by anyone.
func TestReleaseRaces(t *testing.T) {
	t.Parallel()
	f := shared(t)
	rounds := 60
	if testing.Short() {
		rounds = 18
	}
	for i := range rounds {
		opts, _ := traced(nil)
		s, _ := f.Session(opts)
		p, err := mutex(t, s, "x").Lock(ctxT(t), concurrency.MaxHold([]time.Duration{time.Hour, time.Millisecond}[i%2]))
		require.NoError(t, err)
		lease := s.Lease()
		var wg sync.WaitGroup
		results := make([]error, 4)
		for j := range results {
			wg.Go(func() { results[j] = p.Release(ctxT(t)) })
		}
		switch i / 2 % 3 {
		case 0:
			wg.Go(func() { _, _ = f.Client().Revoke(ctxT(t), lease) })
		case 1:
			wg.Go(func() { _ = s.Close(done) })
		}
		wg.Go(func() { _ = p.Err() })
		wg.Wait()
		for _, r := range results {
			require.Equal(t, results[0], r)
			if !errors.Is(r, concurrency.ErrUnconfirmed) && r != nil {
				require.ErrorIs(t, r, concurrency.ErrLost)
			}
		}
		require.Error(t, p.Err())
		require.Error(t, p.Context().Err())
		f.NoKeys("/queue/")
		require.NoError(t, f.closeQuietly(s))
	}
}

func (f fixture) closeQuietly(s *concurrency.Session) error {
	if err := s.Close(ctxT(f.T)); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// The permit's context keeps the values of Acquire's, not its end; its deadline
// moves on with the renewals, up to MaxHold.
func TestPermitContextAndDeadline(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(brisk())
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	p, err := mutex(t, s, "x").Lock(ctx)
	require.NoError(t, err)
	cancel()
	require.NoError(t, p.Context().Err())
	require.Equal(t, "value", p.Context().Value(key{}))
	granted, err := f.Client().TimeToLive(ctxT(t), s.Lease()) // more than asked for, where elections are slow
	require.NoError(t, err)
	first := p.Deadline()
	require.Less(t, time.Until(first), time.Duration(granted.GrantedTTL)*time.Second-300*time.Millisecond)
	require.Eventually(t, func() bool { return p.Deadline().After(first) }, soon, 5*time.Millisecond)
	require.NoError(t, p.Release(ctxT(t)))
	q, err := mutex(t, s, "x").Lock(t.Context(), concurrency.MaxHold(100*time.Millisecond))
	require.NoError(t, err)
	require.LessOrEqual(t, time.Until(q.Deadline()), 100*time.Millisecond)
	lostBy(t, q, concurrency.ErrTooLong)
	f.NoKeys("/queue/")
}

// F06, T37: until when a permit is trusted, to the fraction of a second: the TTL that
// etcd granted, less the margin, or MaxHold. The default margin covers etcd's default
// election timeout of a second, for as long as a former leader that is cut off may
// promise to renew.
func TestDeadlineIsExact(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		opts   concurrency.SessionOptions
		margin time.Duration
		hold   []concurrency.AcquireOption
		until  time.Duration // instead of TTL and margin
	}{
		"defaults":                  {margin: 3000 * ms},
		"the shortest by default":   {opts: concurrency.SessionOptions{TTL: 5000 * ms}, margin: 1200 * ms},
		"a fifth of the TTL":        {opts: concurrency.SessionOptions{TTL: 9000 * ms}, margin: 1800 * ms},
		"a margin of one's own":     {opts: concurrency.SessionOptions{TTL: 9000 * ms, Margin: 1750 * ms}, margin: 1750 * ms},
		"MaxHold below a second":    {hold: []concurrency.AcquireOption{concurrency.MaxHold(900 * ms)}, until: 900 * ms},
		"MaxHold between seconds":   {hold: []concurrency.AcquireOption{concurrency.MaxHold(2500 * ms)}, until: 2500 * ms},
		"MaxHold beyond the margin": {hold: []concurrency.AcquireOption{concurrency.MaxHold(time.Hour)}, margin: 3000 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			before := time.Now()
			s, _ := f.Session(&tt.opts)
			if tt.until > 0 {
				before = time.Now() // it counts from the grant of the permit
			}
			p, err := mutex(t, s, "x").Lock(t.Context(), tt.hold...)
			require.NoError(t, err)
			until := tt.until
			if until == 0 {
				granted, err := f.Client().TimeToLive(ctxT(t), s.Lease())
				require.NoError(t, err)
				until = time.Duration(granted.GrantedTTL)*time.Second - tt.margin
			}
			require.WithinRange(t, p.Deadline(), before.Add(until), time.Now().Add(until))
			require.NoError(t, p.Release(ctxT(t)))
		})
	}
}

// Notices do not pile up, neither in etcd nor here.
func TestNoticesAreRemoved(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	admin, _ := f.Session(nil)
	lock(t, s, "x")
	mu, other := mutex(t, s, "x"), mutex(t, admin, "x")
	for range 3 {
		waiting := make(chan error, 1)
		go func() { _, err := mu.Lock(ctxT(t)); waiting <- err }()
		var st concurrency.Status
		require.Eventually(t, func() bool {
			var err error
			st, err = other.Status(ctxT(t))
			return err == nil && len(st.Waiters) == 1
		}, soon, 5*time.Millisecond)
		require.NoError(t, other.EvictToken(ctxT(t), st.Waiters[0].Token, "no"))
		require.ErrorIs(t, got(t, waiting, "the waiter's Acquire returns"), concurrency.ErrEvicted)
	}
	f.NoKeys("/notice/")
}
