package concurrency_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// events are what a session's hooks tell, as channels.
type events struct {
	lost, renewed chan clientv3.LeaseID
	permit        chan *concurrency.LostError
}

// traced returns options whose hooks tell on channels.
func traced(o *concurrency.SessionOptions) (*concurrency.SessionOptions, events) {
	if o == nil {
		o = &concurrency.SessionOptions{}
	}
	e := events{make(chan clientv3.LeaseID, 100), make(chan clientv3.LeaseID, 100), make(chan *concurrency.LostError, 100)}
	o.Trace = &concurrency.Trace{
		SessionLost:    func(id clientv3.LeaseID, _ error) { e.lost <- id },
		SessionRenewed: func(id clientv3.LeaseID) { e.renewed <- id },
		Lost:           func(err *concurrency.LostError) { e.permit <- err },
	}
	return o, e
}

func lock(t testing.TB, s *concurrency.Session, name string) *concurrency.Permit {
	t.Helper()
	p, err := mutex(t, s, name).Lock(ctxT(t))
	require.NoError(t, err)
	return p
}

// lostBy asserts that a permit has ended, everywhere, by that cause.
func lostBy(t testing.TB, p *concurrency.Permit, cause error) {
	t.Helper()
	closed(t, p.Context().Done(), "the permit's context ends")
	closed(t, p.Lost(), "the permit is lost")
	require.ErrorIs(t, p.Err(), cause)
	require.ErrorIs(t, p.Err(), concurrency.ErrLost)
	require.Equal(t, p.Err(), context.Cause(p.Context()))
	require.ErrorIs(t, p.Release(ctxT(t)), concurrency.ErrLost)
}

// S3, F05, F07, F10: whatever ends a lease early, or takes its presence key away,
// ends the permits at once, long before their time. The session goes on with a
// new lease, and the old one leaves nothing (L6).
func TestTrapS3LostEarly(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(f fixture, lease clientv3.LeaseID, presence string) error{
		"revoked": func(f fixture, lease clientv3.LeaseID, _ string) error { return f.RevokeLease(ctxT(f.t), lease) },
		"expired": func(f fixture, lease clientv3.LeaseID, _ string) error { return f.ExpireLease(ctxT(f.t), lease) },
		"deleted": func(f fixture, _ clientv3.LeaseID, presence string) error {
			_, err := f.Client().Delete(ctxT(f.t), presence)
			return err
		},
		"overwritten": func(f fixture, _ clientv3.LeaseID, presence string) error {
			_, err := f.Client().Put(ctxT(f.t), presence, "mine now")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			// So long that neither the deadline nor a refresh can tell.
			opts, told := traced(&concurrency.SessionOptions{TTL: 300 * time.Second})
			s, _ := f.session(opts)
			p := lock(t, s, "x")
			lease := s.Lease()
			require.NoError(t, strike(f, lease, f.keys("/alive")[0]))
			lostBy(t, p, concurrency.ErrLost)
			require.Equal(t, lease, got(t, told.lost, "SessionLost"))
			require.Equal(t, p.Token(), got(t, told.permit, "Lost").Token)
			next := got(t, told.renewed, "SessionRenewed")
			require.Equal(t, s.Lease(), next)
			require.NotEqual(t, lease, next)
			q := lock(t, s, "x") // at once: no ghost of the old lease is in the way
			require.Greater(t, q.Token(), p.Token())
			require.Eventually(t, func() bool {
				ttl, err := f.Client().TimeToLive(ctxT(t), lease)
				return err == nil && ttl.TTL == -1
			}, soon, 5*time.Millisecond, "the old lease is revoked")
			require.NoError(t, q.Release(ctxT(t)))
		})
	}
}

// F20: the lease goes while a request is under way. The call queues anew on the
// next one.
func TestLeaseGoesUnderARequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.session(nil)
	mu := mutex(t, s, "x")
	inj := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	ch := make(chan *concurrency.Permit, 1)
	go func() {
		p, err := mu.Lock(ctxT(t))
		if err != nil {
			t.Error(err)
		}
		ch <- p
	}()
	require.NoError(t, inj.Wait(ctxT(t)))
	old := s.Lease()
	require.NoError(t, f.RevokeLease(ctxT(t), old))
	require.NoError(t, inj.Release())
	p := got(t, ch, "the call succeeds on the next lease")
	require.NotEqual(t, old, s.Lease())
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
}

// F14: with etcd out of reach, NewSession returns when its ctx ends, and says so.
func TestNewSessionWithoutEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, strike := range map[string]func(*embedtest.Client){"cut": (*embedtest.Client).Cut, "black hole": (*embedtest.Client).BlackHole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.NewClient(t)
			strike(c)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begun := time.Now()
			s, err := concurrency.NewSession(ctx, c.Client, "test", &concurrency.SessionOptions{Prefix: f.prefix})
			require.Nil(t, s)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begun), 5*time.Second)
		})
	}
}

// F48: so it does when the client is closed, before or meanwhile.
func TestNewSessionOnClosedClient(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t)
	inj := c.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.HoldRequest})
	done := make(chan error, 1)
	open := func() {
		_, err := concurrency.NewSession(context.Background(), c.Client, "test", &concurrency.SessionOptions{Prefix: f.prefix})
		done <- err
	}
	go open()
	require.NoError(t, inj.Wait(ctxT(t)))
	require.NoError(t, c.Close())
	require.ErrorIs(t, got(t, done, "NewSession returns"), concurrency.ErrClosed)
	go open()
	require.ErrorIs(t, got(t, done, "NewSession returns"), concurrency.ErrClosed)
}

// F15: neither a lost answer to the grant nor a failure after it leaves a lease.
func TestNewSessionLeavesNoLease(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	leases := func() int {
		resp, err := f.Client().Leases(ctxT(t))
		require.NoError(t, err)
		return len(resp.Leases)
	}
	c := f.NewClient(t)
	inj := c.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.DropAnswer, Times: 2})
	s := f.sessionOn(c.Client, nil)
	require.Equal(t, 2, inj.Struck())
	require.Equal(t, 1, leases(), "the repeated grant found its own lease")
	require.NoError(t, s.Close(ctxT(t)))
	require.Zero(t, leases())

	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	_, err := concurrency.NewSession(ctxT(t), c.Client, "test", &concurrency.SessionOptions{Prefix: f.prefix})
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.Eventually(t, func() bool { return leases() == 0 }, soon, 5*time.Millisecond, "the lease is revoked")

	c.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.DropAnswer, Err: rpctypes.ErrGRPCNoSpace})
	_, err = concurrency.NewSession(ctxT(t), c.Client, "test", &concurrency.SessionOptions{Prefix: f.prefix})
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.Eventually(t, func() bool { return leases() == 0 }, soon, 5*time.Millisecond, "it was granted, and is revoked")
	require.Empty(t, f.keys(""))
}

// F17: two sessions of one process, on one client, have nothing in common; F12:
// each has a stream of its own.
func TestSessionsOfOneClient(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t)
	a, b := f.sessionOn(c.Client, nil), f.sessionOn(c.Client, nil)
	require.Eventually(t, func() bool { return c.OpenStreams()["LeaseKeepAlive"] == 2 }, soon, time.Millisecond)
	p := lock(t, b, "x")
	require.NoError(t, a.Close(ctxT(t)))
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
}

// T33, F33: streams of renewals break, go silent or hang, again and again, and the
// session lives on through several TTLs.
func TestRenewalsRecover(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"broken":        {Do: embedtest.FailWith},
		"bad token":     {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCInvalidAuthToken},
		"answer lost":   {Do: embedtest.DropAnswer},
		"answer stuck":  {Do: embedtest.HoldAnswer},
		"request stuck": {Do: embedtest.HoldRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			opts, told := traced(&concurrency.SessionOptions{TTL: 2 * time.Second, Margin: 500 * time.Millisecond})
			s, c := f.session(opts)
			p := lock(t, s, "x")
			fault.Method, fault.Times = "LeaseKeepAlive", 3
			// Every other message is struck, so that a stream breaks
			// after it has worked.
			var n atomic.Int64
			fault.Match = func(string, any) bool { return n.Add(1)%2 == 0 }
			inj := c.Inject(fault)
			select {
			case <-p.Context().Done():
				require.NoError(t, context.Cause(p.Context()))
			case <-time.After(4 * time.Second): // two TTLs
			}
			require.Equal(t, 3, inj.Struck())
			require.Empty(t, told.lost)
			require.NoError(t, p.Release(ctxT(t)))
		})
	}
}

// F08, T34: leaders come and go and a member restarts, for longer than the TTL.
// No holder is lost; a holder that died is gone in the end.
func TestLeaderChangesCostNoHolder(t *testing.T) {
	t.Parallel()
	f := own(t, 3)
	opts, told := traced(&concurrency.SessionOptions{TTL: 3 * time.Second, Margin: 500 * time.Millisecond})
	s, _ := f.session(opts)
	p := lock(t, s, "x")
	dead, c := f.session(opts)
	lock(t, dead, "y")
	for end := time.Now().Add(3500 * time.Millisecond); time.Now().Before(end); {
		leader, err := f.WaitLeader(ctxT(t))
		require.NoError(t, err)
		require.NoError(t, f.MoveLeader(ctxT(t), (leader+1)%3))
		time.Sleep(300 * time.Millisecond)
	}
	leader, err := f.WaitLeader(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, f.Crash(leader))
	require.NoError(t, f.Restart(ctxT(t), leader))
	require.NoError(t, p.Err())
	require.Empty(t, told.lost)
	c.Cut()
	q := lock(t, s, "y")
	require.NoError(t, q.Release(ctxT(t)))
	require.NoError(t, p.Release(ctxT(t)))
}

// hole is a network in which one member can be made a black hole: connections to
// it stay open, and nothing comes through.
type hole struct{ addr atomic.Value }

func (h *hole) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &holeConn{Conn: c, hole: h, addr: addr, done: make(chan struct{})}, nil
}

type holeConn struct {
	net.Conn
	hole   *hole
	addr   string
	done   chan struct{}
	closed atomic.Bool
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

// F13: one member of three is a black hole. Whichever it is, the session finds
// its way to the others, and so do calls.
func TestBlackHoledMember(t *testing.T) {
	t.Parallel()
	f := own(t, 3)
	for i, endpoint := range f.Endpoints() {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			h := &hole{}
			h.addr.Store("")
			c := f.NewClientWith(t, &embedtest.ClientOptions{Configure: func(cfg *clientv3.Config) {
				cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(h.dial))
			}})
			opts, told := traced(&concurrency.SessionOptions{TTL: 2 * time.Second, Margin: 500 * time.Millisecond})
			s := f.sessionOn(c.Client, opts)
			p := lock(t, s, strconv.Itoa(i))
			h.addr.Store(strings.TrimPrefix(endpoint, "http://"))
			select {
			case <-p.Context().Done():
				require.NoError(t, context.Cause(p.Context()))
			case <-time.After(2500 * time.Millisecond):
			}
			require.Empty(t, told.lost)
			require.NoError(t, p.Release(ctxT(t)))
		})
	}
}

// F22, F36, L9: with passwords, and tokens that live for a second, a session
// lives on, waiting works, and authentication is not asked for again and again.
func TestTrapL9ShortTokens(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{AuthTokenTTL: time.Second})
	f := fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.prefix))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	opts, told := traced(&concurrency.SessionOptions{TTL: 2 * time.Second, Margin: 500 * time.Millisecond})
	worker := func() *embedtest.Client {
		return c.NewClientWith(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	}
	one, two := worker(), worker()
	s1, s2 := f.sessionOn(one.Client, opts), f.sessionOn(two.Client, opts)
	p := lock(t, s1, "x")
	waiting := make(chan *concurrency.Permit, 1)
	mu := mutex(t, s2, "x")
	go func() {
		p, err := mu.Lock(ctxT(t))
		if err != nil {
			t.Error(err)
		}
		waiting <- p
	}()
	time.Sleep(4 * time.Second) // four lives of a token, two of a lease
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
	q := got(t, waiting, "the waiter gets in")
	require.NoError(t, lock(t, s2, "y").Release(ctxT(t)))
	require.NoError(t, q.Release(ctxT(t)))
	require.Empty(t, told.lost)
	require.NoError(t, s1.Close(ctxT(t)))
	require.NoError(t, s2.Close(ctxT(t)))
	require.Empty(t, f.keys(""))
	for _, c := range []*embedtest.Client{one, two} {
		n := c.Requests()["Authenticate"]
		t.Logf("%d authentications, streams %v", n, c.Requests())
		require.Less(t, n, 25, "a storm: %v", c.Requests())
	}
}

// F22: as long as the tokens live, there is one authentication for the client and
// one for each stream, however many renewals and calls there are.
func TestNoAuthStorm(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.prefix))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	client := c.NewClientWith(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	s := f.sessionOn(client.Client, quick())
	for range 50 {
		require.NoError(t, lock(t, s, "x").Release(ctxT(t)))
	}
	require.Eventually(t, func() bool { return client.Requests()["LeaseKeepAlive.Send"] >= 6 }, soon, 10*time.Millisecond)
	r := client.Requests()
	require.LessOrEqual(t, r["Authenticate"], 1+r["LeaseKeepAlive"]+r["Watch"], "%v", r)
	require.LessOrEqual(t, r["Authenticate"], 4, "%v", r)
}

// F21: the role loses the prefix. That ends the permits, and the cause says why;
// when it has the prefix again the session goes on.
func TestPermissionLost(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.prefix))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	client := c.NewClientWith(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	opts, told := traced(&concurrency.SessionOptions{TTL: 6 * time.Second})
	s := f.sessionOn(client.Client, opts)
	p := lock(t, s, "x")
	end := clientv3.GetPrefixRangeEnd(f.prefix)
	_, err := c.Client().RoleRevokePermission(ctxT(t), "worker", f.prefix, end)
	require.NoError(t, err)
	lostBy(t, p, concurrency.ErrLost)
	require.Contains(t, p.Err().Error(), "denied")
	// Whoever asks now is told why he gets nothing. The reason is known when the
	// first new lease was refused.
	require.Eventually(t, func() bool {
		short, cancel := context.WithTimeout(ctxT(t), 20*time.Millisecond)
		defer cancel()
		_, err := mutex(t, s, "z").Lock(short)
		return errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "permission denied")
	}, soon, time.Millisecond)
	_, err = c.Client().RoleGrantPermission(ctxT(t), "worker", f.prefix, end, clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	got(t, told.renewed, "SessionRenewed")
	require.NoError(t, lock(t, s, "y").Release(ctxT(t)))
}

// A session works under etcd's namespace wrappers, and over TLS.
func TestSessionOnWrappedClients(t *testing.T) {
	t.Parallel()
	tls := embedtest.Start(t, &embedtest.Options{TLS: true})
	for name, f := range map[string]fixture{"namespace": shared(t), "TLS": {Cluster: tls, t: t, prefix: tls.Prefix(t)}} {
		c := f.NewClient(t).Client
		outer := ""
		if name == "namespace" {
			outer = f.prefix
			f.prefix = "/inner"
			c.KV, c.Watcher, c.Lease = namespace.NewKV(c.KV, outer), namespace.NewWatcher(c.Watcher, outer), namespace.NewLease(c.Lease, outer)
		}
		opts, told := traced(nil)
		s := f.sessionOn(c, opts)
		sm := sem(t, s, "x", 1)
		p, err := sm.Acquire(ctxT(t), concurrency.ID("job"))
		require.NoError(t, err)
		resp, err := c.Txn(ctxT(t)).If(p.Guard()).Then(clientv3.OpPut(s.Prefix()+"effect", "1")).Commit()
		require.NoError(t, err)
		require.True(t, resp.Succeeded, "the guard sees the session's keys")
		ch := make(chan *concurrency.Permit, 1)
		go func() {
			q, err := sm.Acquire(ctxT(t))
			if err != nil {
				t.Error(err)
			}
			ch <- q
		}()
		require.Eventually(t, func() bool {
			st, err := sm.Status(ctxT(t))
			return err == nil && len(st.Waiters) == 1
		}, soon, time.Millisecond)
		require.NoError(t, sm.Evict(ctxT(t), "job", "enough"))
		lostBy(t, p, concurrency.ErrEvicted)
		require.NoError(t, got(t, ch, "the waiter gets in").Release(ctxT(t)))
		_, err = c.Delete(ctxT(t), s.Prefix()+"session/", clientv3.WithPrefix())
		require.NoError(t, err)
		got(t, told.renewed, "its presence key is watched")
		require.NoError(t, s.Close(ctxT(t)))
		left, err := f.Client().Get(ctxT(t), outer+s.Prefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		require.Len(t, left.Kvs, 2, "the limit and the effect: %v", left.Kvs)
	}
}

// Options out of range are refused before anything is written.
func TestSessionOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t)
	const s = time.Second
	for name, o := range map[string]concurrency.SessionOptions{
		"TTL too short":         {TTL: 4 * s},
		"TTL too short, margin": {TTL: s / 2, Margin: s / 10},
		"TTL negative":          {TTL: -s},
		"TTL too long":          {TTL: 301 * s},
		"TTL not whole":         {TTL: 5*s + 1},
		"margin negative":       {Margin: -s},
		"margin too wide":       {TTL: 10 * s, Margin: 5*s + 1},
		"prefix only slashes":   {Prefix: "//"},
		"prefix with a gap":     {Prefix: "/a//b"},
		"prefix hostile":        {Prefix: "/a\xff"},
		"holder too long":       {Holder: strings.Repeat("x", 256)},
		"permits negative":      {MaxPermits: -1},
		"permits too many":      {MaxPermits: 65537},
		"reports too often":     {ReportEvery: time.Microsecond},
	} {
		_, err := concurrency.NewSession(ctxT(t), c.Client, "test", &o)
		require.ErrorIs(t, err, concurrency.ErrInvalid, name)
	}
	for _, ns := range []string{"", "a/b", "a\x00", strings.Repeat("x", 256), "\xff"} {
		_, err := concurrency.NewSession(ctxT(t), c.Client, ns, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", ns)
	}
	_, err := concurrency.NewSession(ctxT(t), nil, "test", nil)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = concurrency.NewSession(done, c.Client, "test", nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, c.Requests(), "nothing was asked of etcd")
}
