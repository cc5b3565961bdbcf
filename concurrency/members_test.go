package concurrency_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// etcd is away for a while before a permit's deadline, and a connection was refused:
// gRPC, left to itself, would try again only after that deadline.
func TestOutageUnderGRPCsBackOff(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a renewal: 5 s")
	}
	t.Parallel()
	f := own(t, 1)
	c := f.NewClient(t, &embedtest.ClientOptions{Configure: func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Minute, Multiplier: 1, MaxDelay: time.Minute}}))
	}})
	opts, reported := traced(&concurrency.SessionOptions{TTL: 15 * time.Second, Margin: 500 * time.Millisecond})
	p := lock(t, f.SessionOn(c.Client, opts), "x")
	require.NoError(t, f.Crash(0))
	require.Eventually(t, func() bool { return c.ActiveConnection().GetState() == connectivity.TransientFailure }, soon, tick, "refused")
	deadline := p.Deadline()
	require.NoError(t, f.Restart(ctxT(t), 0))
	require.Eventually(t, func() bool { return p.Deadline().After(deadline) }, soon, tick)
	require.NoError(t, p.Err())
	require.Empty(t, reported.lost)
	require.NoError(t, p.Release(ctxT(t)))
}

// T34: leaders come and go, for longer than the TTL, and at last the member crashes
// at which the session has its streams. No holder is lost.
func TestLeaderChangesCostNoHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("leaders change for longer than a TTL: 11 s")
	}
	t.Parallel()
	// Leaders change when the test says so, and not because a busy machine has delayed a heartbeat.
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3, ElectionTimeout: 500 * time.Millisecond})
	f, ctx, member := fixture{testkit.On(t, etcd)}, ctxT(t), 0
	c := f.NewClient(t, &embedtest.ClientOptions{Endpoints: f.Endpoints()[member : member+1]})
	const ttl = 10 * time.Second
	opts, reported := traced(&concurrency.SessionOptions{TTL: ttl, Margin: 500 * time.Millisecond})
	s := f.SessionOn(c.Client, opts)
	p := lock(t, s, "x")
	c.SetEndpoints(f.Endpoints()...) // the streams stay where they are
	for end := time.Now().Add(ttl + 500*time.Millisecond); time.Now().Before(end); {
		leader, err := f.WaitLeader(ctx)
		require.NoError(t, err)
		require.NoError(t, f.MoveLeader(ctxT(t), (leader+1)%3))
		time.Sleep(300 * time.Millisecond) // so that each leads for a while
	}
	require.NoError(t, f.MoveLeader(ctxT(t), member))
	streams := c.Requests()["LeaseKeepAlive"]
	require.NoError(t, f.Crash(member))
	require.Eventually(t, func() bool { return c.Requests()["LeaseKeepAlive"] > streams }, soon, tick, "the stream was there")
	require.NoError(t, f.Restart(ctx, member))
	require.NoError(t, p.Err())
	require.Empty(t, reported.lost)
	require.NoError(t, p.Release(ctx))
}

// F08: a holder dies, and the leader changes just before its lease expires: the new
// one gives every lease its full time once more. So the next caller waits for
// longer than a TTL, but no longer than docs/guarantees.md says (G5): a TTL and
// half a second, and for the change a TTL and an election timeout.
func TestDeadHolderAcrossALeaderChange(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease: 8 s")
	}
	t.Parallel()
	const (
		ttl      = 4 * time.Second
		election = 100 * time.Millisecond // embedtest's
		busy     = soon                   // for a machine that is
	)
	f := own(t, 3)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	dead, c := f.Session(&concurrency.SessionOptions{TTL: ttl, Margin: ttl / 2})
	p := lock(t, dead, "x")
	c.Cut()
	died := time.Now() // it has renewed its lease a moment before, so this is the longest
	next := make(chan *concurrency.Permit, 1)
	go func() { q, _ := mutex(t, s, "x").Lock(ctx); next <- q }()
	closed(t, p.Context().Done(), "its deadline passes, two seconds before the lease expires")
	leader, err := f.WaitLeader(ctx)
	require.NoError(t, err)
	changed := time.Now()
	require.NoError(t, f.MoveLeader(ctx, (leader+1)%3))
	moved := time.Now()
	q := got(t, next, "the next caller gets it")
	now := time.Now()
	t.Logf("with a TTL of %v: %v after the holder's death, %v after the change", ttl, now.Sub(died), now.Sub(changed))
	require.Greater(t, now.Sub(changed), ttl, "the change has lengthened it")
	require.LessOrEqual(t, now.Sub(moved), ttl+election+2*time.Second+busy, "it is not lengthened by more")
	require.NoError(t, q.Release(ctx))
}

// F47: the leader crashes while many acquire and release. No call fails, no call
// overlaps, nothing is left.
func TestLeaderCrashUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster and waits for an election under load: 6 s")
	}
	t.Parallel()
	f := own(t, 3)
	ctx := ctxT(t)
	var g gauge
	var wg sync.WaitGroup
	halfway := make(chan struct{})
	var once sync.Once
	for range 4 {
		s, _ := f.Session(nil)
		sm := sem(t, s, "x", 2)
		wg.Go(func() {
			for i := range 30 {
				p, err := sm.Acquire(ctx)
				if !assertNoError(t, err) {
					return
				}
				g.enter(1)
				g.leave(1)
				assertNoError(t, p.Release(ctx))
				if i == 10 {
					once.Do(func() { close(halfway) })
				}
			}
		})
	}
	closed(t, halfway, "the load runs")
	leader, err := f.WaitLeader(ctx)
	require.NoError(t, err)
	require.NoError(t, f.Crash(leader))
	wg.Wait()
	require.LessOrEqual(t, g.peak.Load(), int64(2))
	require.NoError(t, f.Restart(ctx, leader))
	f.NoKeys("queue/")
}

// F33: a waiter whose watch is at a member that is cut off from the others is
// served through another member, long before a list would show it.
func TestWaiterAtACutMember(t *testing.T) {
	t.Parallel()
	f := own(t, 3)
	ctx := ctxT(t)
	leader, err := f.WaitLeader(ctx)
	require.NoError(t, err)
	cut := (leader + 1) % 3
	c := f.NewClient(t, &embedtest.ClientOptions{Endpoints: f.Endpoints()[cut : cut+1]})
	sm := sem(t, f.SessionOn(c.Client, idle()), "x", 1)
	other := f.SessionOn(f.NewClient(t, &embedtest.ClientOptions{Endpoints: f.Endpoints()[leader : leader+1]}).Client, nil)
	p := acquire(t, ctx, sem(t, other, "x", 1))
	w := ask(t, ctx, sm)
	f.sees(ctx, sm)
	c.SetEndpoints(f.Endpoints()...) // the watch stays where it is
	require.NoError(t, f.CutPeers(cut))
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "despite the cut member").Release(ctx))
	require.NoError(t, f.HealPeers(cut))
}

// hole is a network in which one member can be made a black hole: connections to
// it stay open, and nothing comes through.
type hole struct{ addr atomic.Value }

type holeConn struct {
	net.Conn
	hole   *hole
	addr   string
	done   chan struct{}
	closed atomic.Bool
}

func (h *hole) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &holeConn{Conn: c, hole: h, addr: addr, done: make(chan struct{})}, nil
}

func (c *holeConn) Write(p []byte) (int, error) {
	if c.hole.addr.Load() == c.addr {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *holeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.hole.addr.Load() == c.addr {
		<-c.done
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *holeConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		close(c.done)
	}
	return c.Conn.Close()
}

// F13: the member at which a session has its streams becomes a black hole. Whichever
// it is, the session finds its way to the others, and so do calls.
func TestBlackHoledMember(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes longer than a TTL: 16 s")
	}
	t.Parallel()
	f := own(t, 3)
	for i, endpoint := range f.Endpoints() {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			h := &hole{}
			h.addr.Store("")
			c := f.NewClient(t, &embedtest.ClientOptions{Endpoints: []string{endpoint}, Configure: func(cfg *clientv3.Config) {
				cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(h.dial))
			}})
			opts, reported := traced(&concurrency.SessionOptions{TTL: 15 * time.Second, Margin: 500 * time.Millisecond})
			s := f.SessionOn(c.Client, opts)
			p := lock(t, s, strconv.Itoa(i))
			require.Eventually(t, func() bool { return c.OpenStreams()["LeaseKeepAlive"] == 1 }, soon, tick)
			c.SetEndpoints(f.Endpoints()...) // the streams stay where they are
			h.addr.Store(strings.TrimPrefix(endpoint, "http://"))
			select {
			case <-p.Context().Done():
				require.NoError(t, context.Cause(p.Context()))
			case <-time.After(15500 * time.Millisecond): // longer than the TTL
			}
			require.Empty(t, reported.lost)
			require.NoError(t, p.Release(ctxT(t)))
		})
	}
}

// A785: a connection that is cut while streams are opened by a client of several members. gRPC sends such a stream again, and
// waits for a connection with a lock that the session asked for while it held its own: no call ended any more, whatever its ctx.
func TestCallsEndWhileStreamsWaitForAConnection(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3})
	f, ctx := fixture{testkit.On(t, etcd)}, ctxT(t)
	for range 8 {
		c := f.NewClient(t, nil)
		s := f.SessionOn(c.Client, nil)
		sem, err := concurrency.NewSemaphore(s, "x", 1, nil)
		require.NoError(t, err)
		c.Cut()
		ended := make(chan error, 1)
		go func() {
			_, err := sem.Acquire(ctx, concurrency.Wait(time.Second))
			ended <- err
		}()
		require.ErrorIs(t, testkit.Got(t, ended, "the call ends"), concurrency.ErrUnavailable)
		c.Heal()
	}
}
