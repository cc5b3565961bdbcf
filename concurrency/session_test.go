package concurrency_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// F14: with etcd out of reach, NewSession returns when its ctx ends, and says so.
func TestNewSessionWithoutEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, strike := range map[string]func(*embedtest.Client){"cut": (*embedtest.Client).Cut, "black hole": (*embedtest.Client).BlackHole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.NewClient(t, nil)
			strike(c)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begun := time.Now()
			s, err := concurrency.NewSession(ctx, c.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
			require.Nil(t, s)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begun), 5*time.Second)
		})
	}
}

// F14: the program of the README does not hang when there is no etcd. It is tested in virtual time, here
// since its code is an example of this package.
func TestReadmeProgramWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, server *etcdfake.Server) {
		c := server.NewClient()
		c.Stall()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		require.ErrorIs(t, run(ctx, c.Client), context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begun))
	})
}

// F48: NewSession returns when the client is closed, before or meanwhile.
func TestNewSessionOnClosedClient(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t, nil)
	inj := c.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.HoldRequest})
	done := make(chan error, 1)
	open := func() {
		_, err := concurrency.NewSession(context.Background(), c.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
		done <- err
	}
	go open()
	require.NoError(t, inj.WaitHit(ctxT(t)))
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
	c := f.NewClient(t, nil)
	inj := c.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.DropResponse, Times: 2})
	s := f.SessionOn(c.Client, nil)
	require.Equal(t, 2, inj.Hits())
	require.Equal(t, 1, leases(), "the repeated grant found its own lease")
	require.NoError(t, s.Close(ctxT(t)))
	require.Zero(t, leases())

	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
	_, err := concurrency.NewSession(ctxT(t), c.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.Eventually(t, func() bool { return leases() == 0 }, soon, 5*time.Millisecond, "the lease is revoked")

	c.Inject(embedtest.Fault{Method: "LeaseGrant", Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	_, err = concurrency.NewSession(ctxT(t), c.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.Eventually(t, func() bool { return leases() == 0 }, soon, 5*time.Millisecond, "it was granted, and is revoked")
	require.Empty(t, f.Keys(""))
}

// F17: two sessions of one process, on one client, have nothing in common; F12:
// each has a stream of its own.
func TestSessionsOfOneClient(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t, nil)
	a, b := f.SessionOn(c.Client, nil), f.SessionOn(c.Client, nil)
	require.Eventually(t, func() bool { return c.OpenStreams()["LeaseKeepAlive"] == 2 }, soon, 5*time.Millisecond)
	p := lock(t, b, "x")
	require.NoError(t, a.Close(ctxT(t)))
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
}

// A session works under etcd's namespace wrappers, and over TLS.
func TestSessionOnWrappedClients(t *testing.T) {
	t.Parallel()
	t.Run("namespace", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		c, outer := f.NewClient(t, nil).Client, f.Root
		c.KV, c.Watcher, c.Lease = namespace.NewKV(c.KV, outer), namespace.NewWatcher(c.Watcher, outer), namespace.NewLease(c.Lease, outer)
		f.Root = "/inner"
		sessionOnWrappedClient(t, f, c, outer)
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		tls := embedtest.Start(t, &embedtest.Options{TLS: true})
		f := fixture{testkit.On(t, tls)}
		sessionOnWrappedClient(t, f, f.NewClient(t, nil).Client, "")
	})
}

func sessionOnWrappedClient(t *testing.T, f fixture, c *clientv3.Client, outer string) {
	opts, reported := traced(nil)
	s := f.SessionOn(c, opts)
	sm := sem(t, s, "x", 1)
	p, err := sm.Acquire(ctxT(t), concurrency.ID("job"))
	require.NoError(t, err)
	resp, err := c.Txn(ctxT(t)).If(p.Guard()).Then(clientv3.OpPut(s.NamespacePrefix()+"effect", "1")).Commit()
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
	}, soon, 5*time.Millisecond)
	require.NoError(t, sm.Evict(ctxT(t), "job", "enough"))
	lostBy(t, p, concurrency.ErrEvicted)
	require.NoError(t, got(t, ch, "the waiter gets in").Release(ctxT(t)))
	_, err = c.Delete(ctxT(t), s.NamespacePrefix()+"session/", clientv3.WithPrefix())
	require.NoError(t, err)
	got(t, reported.renewed, "its presence key is watched")
	require.NoError(t, s.Close(ctxT(t)))
	left, err := f.Client().Get(ctxT(t), outer+s.NamespacePrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.Len(t, left.Kvs, 2, "the limit and the effect: %v", left.Kvs)
}

// Options out of range are refused before anything is written.
func TestSessionOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	c := f.NewClient(t, nil)
	const s = time.Second
	for name, o := range map[string]concurrency.SessionOptions{
		"TTL too short":         {TTL: 4 * s},
		"TTL too short, margin": {TTL: s / 2, Margin: s / 10},
		"TTL negative":          {TTL: -s},
		"TTL too long":          {TTL: 24*time.Hour + s},
		"TTL not whole":         {TTL: 5*s + 1},
		"margin negative":       {Margin: -s},
		"margin too wide":       {TTL: 10 * s, Margin: 5*s + 1},
		"prefix only slashes":   {Prefix: "//"},
		"prefix with a gap":     {Prefix: "/a//b"},
		"prefix hostile":        {Prefix: "/a\xff"},
		"owner too long":        {Owner: strings.Repeat("x", 256)},
		"permits negative":      {MaxPermits: -1},
		"permits too many":      {MaxPermits: 65537},
		"reports too often":     {ReportEvery: time.Microsecond},
		"release not awaited":   {ReleaseTimeout: time.Microsecond},
		"release negative":      {ReleaseTimeout: -s},
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

// A session that only reads, for tools, shows the state and takes no lease; what needs one fails at once.
func TestSessionThatOnlyReads(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := testkit.Context(t)
	holder, _ := f.Session(&concurrency.SessionOptions{Owner: "a"})
	sm, err := concurrency.NewSemaphore(holder, "charge", 1, nil)
	require.NoError(t, err)
	p, err := sm.Acquire(ctx)
	require.NoError(t, err)
	c := f.NewClient(t, nil)
	s, err := concurrency.NewSession(engine.Leaseless(ctx), c.Client, "test", &concurrency.SessionOptions{Prefix: f.Root, Owner: "b"})
	require.NoError(t, err)
	reader, err := concurrency.NewSemaphore(s, "charge", 0, &concurrency.SemaphoreOptions{AdoptLimit: true})
	require.NoError(t, err)
	st, err := reader.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, p.Token(), st.Holders[0].Token)
	_, err = reader.Acquire(ctx)
	require.ErrorIs(t, err, engine.ErrLeaseless)
	require.Zero(t, s.Lease())
	require.NoError(t, s.Close(ctx))
	_, err = reader.Status(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.Zero(t, c.Requests()["LeaseGrant"], c.Requests())

	cut := f.NewClient(t, nil)
	cut.Cut()
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = concurrency.NewSession(engine.Leaseless(soon), cut.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A306 in internal/proof/tested-failures.md: a client without a connection, as v3client.New makes for an etcd in the same
// process, is refused. It was a nil pointer, also in a goroutine.
func TestClientWithoutAConnection(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	inProcess := clientv3.NewCtxClient(ctx)
	inProcess.KV, inProcess.Lease, inProcess.Watcher = f.Client().KV, f.Client().Lease, f.Client().Watcher
	for _, c := range []*clientv3.Client{inProcess, clientv3.NewCtxClient(ctx), {}} {
		_, err := concurrency.NewSession(ctx, c, "test", nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		require.ErrorContains(t, err, "make it by clientv3.New")
	}
}
