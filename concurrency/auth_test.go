package concurrency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// F22, F36, L9: with passwords, and tokens that live for a second, a session
// lives on, waiting works, and authentication is not asked for again and again.
func TestTrapL9ShortTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("it rests on lives of tokens and a lease: 10 s")
	}
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{AuthTokenTTL: time.Second})
	f := fixture{testkit.On(t, c)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.Root))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	opts, reported := traced(&concurrency.SessionOptions{TTL: 8 * time.Second, Margin: 500 * time.Millisecond})
	worker := func() *embedtest.Client {
		return c.NewClient(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	}
	one, two := worker(), worker()
	quiet, reportedToo := traced(idle()) // its token is not used in between, which would extend it
	s1, s2 := f.SessionOn(one.Client, opts), f.SessionOn(two.Client, quiet)
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
	time.Sleep(10 * time.Second) // ten lives of a token, one and a quarter of a lease
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
	q := got(t, waiting, "the waiter gets in")
	require.NoError(t, lock(t, s2, "y").Release(ctxT(t)))
	require.NoError(t, q.Release(ctxT(t)))
	// A new watch, on a stream whose token ran out long ago.
	p = lock(t, s1, "z")
	ch := make(chan answer, 1)
	go func() { p, err := mutex(t, s2, "z").Lock(ctxT(t)); ch <- answer{p, err} }()
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, granted(t, ch, "the next waiter gets in").Release(ctxT(t)))
	require.Greater(t, two.Requests()["Watch"], 1, "the first stream was of no use any more")
	require.Empty(t, reported.lost)
	require.Empty(t, reportedToo.lost)
	require.NoError(t, s1.Close(ctxT(t)))
	require.NoError(t, s2.Close(ctxT(t)))
	require.Empty(t, f.Keys(""))
	for _, c := range []*embedtest.Client{one, two} {
		n := c.Requests()["Authenticate"]
		t.Logf("%d authentications, streams %v", n, c.Requests())
		require.Less(t, n, 50, "a storm: %v", c.Requests())
	}
}

// F22: as long as the tokens live, there is one authentication for the client and
// one for each stream, however many renewals and calls there are.
func TestNoAuthStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for six renewals: 10 s")
	}
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{testkit.On(t, c)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.Root))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	client := c.NewClient(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	s := f.SessionOn(client.Client, brisk())
	const calls = 200
	for range calls / 2 {
		require.NoError(t, lock(t, s, "x").Release(ctxT(t)))
	}
	require.Eventually(t, func() bool { return client.Requests()["LeaseKeepAlive.Send"] >= 6 }, soon, 10*time.Millisecond)
	r := client.Requests()
	// A few for the connection, the streams, and tokens that run out on a busy machine.
	require.Less(t, r["Authenticate"], calls/2, "%v", r)
}

// denials are ways in which an operator takes away what a session needs, and puts it back.
var denials = map[string]struct {
	deny, allow func(ctx context.Context, admin *clientv3.Client, root string) error
	says        string
}{
	"role": {
		func(ctx context.Context, admin *clientv3.Client, root string) error {
			_, err := admin.RoleRevokePermission(ctx, "worker", root, clientv3.GetPrefixRangeEnd(root))
			return err
		},
		func(ctx context.Context, admin *clientv3.Client, root string) error {
			_, err := admin.RoleGrantPermission(ctx, "worker", root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		"permission denied",
	},
	"password": {
		func(ctx context.Context, admin *clientv3.Client, _ string) error {
			_, err := admin.UserChangePassword(ctx, "worker", "another")
			return err
		},
		func(ctx context.Context, admin *clientv3.Client, _ string) error {
			_, err := admin.UserChangePassword(ctx, "worker", "secret")
			return err
		},
		"authentication failed",
	},
	"user": {
		func(ctx context.Context, admin *clientv3.Client, _ string) error {
			_, err := admin.UserDelete(ctx, "worker")
			return err
		},
		func(ctx context.Context, admin *clientv3.Client, _ string) error {
			if _, err := admin.UserAdd(ctx, "worker", "secret"); err != nil {
				return err
			}
			_, err := admin.UserGrantRole(ctx, "worker", "worker")
			return err
		},
		"authentication failed",
	},
}

// F21, A113: the role loses the prefix, the password is changed, or the user is deleted. As long as the lease
// can be trusted that ends nothing: what is held lives on if it is put back in time. Otherwise the lease ends at
// its deadline, the cause says why, and when it is put back the session continues.
func TestPermissionLost(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for the deadline of a lease: 6 s")
	}
	t.Parallel()
	for name, d := range denials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, nil)
			f := fixture{testkit.On(t, c)}
			require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.Root))
			require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
			client := c.NewClient(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
			refused, allowed := make(chan struct{}, 100), make(chan struct{}, 100)
			opts, reported := traced(&concurrency.SessionOptions{TTL: 6 * time.Second})
			opts.Logger = logs(map[string]chan<- struct{}{"etcd refuses what the session needs": refused, "etcd allows again": allowed})
			s := f.SessionOn(client.Client, opts)
			p := lock(t, s, "x")
			waiting, end := context.WithCancel(ctxT(t))
			defer end()
			w := make(chan answer, 1)
			go func() { p, err := mutex(t, s, "x").Lock(waiting); w <- answer{p, err} }()
			require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)

			require.NoError(t, d.deny(ctxT(t), c.Client(), f.Root))
			got(t, refused, "the renewal is refused")
			require.NoError(t, d.allow(ctxT(t), c.Client(), f.Root))
			got(t, allowed, "it is acknowledged")
			require.NoError(t, p.Err())
			require.Empty(t, reported.lost)
			require.NoError(t, p.Release(ctxT(t)))
			p = granted(t, w, "the waiter gets in")

			require.NoError(t, d.deny(ctxT(t), c.Client(), f.Root))
			lostBy(t, p, concurrency.ErrLost)
			require.Contains(t, p.Err().Error(), "renewal of the lease is denied")
			require.Contains(t, p.Err().Error(), d.says)
			// A new call returns the reason at once. The reason is known when the
			// first new lease was refused.
			require.Eventually(t, func() bool {
				short, cancel := context.WithTimeout(ctxT(t), 20*time.Millisecond)
				defer cancel()
				_, err := mutex(t, s, "z").Lock(short)
				return errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), d.says)
			}, soon, 5*time.Millisecond)
			require.NoError(t, d.allow(ctxT(t), c.Client(), f.Root))
			got(t, reported.renewed, "SessionRenewed")
			require.NoError(t, lock(t, s, "y").Release(ctxT(t)))
		})
	}
}

// logs returns a logger that sends when a line begins with a text.
func logs(on map[string]chan<- struct{}) *zap.Logger {
	core, _ := observer.New(zap.InfoLevel)
	return zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		for text, ch := range on {
			if strings.HasPrefix(e.Message, text) {
				ch <- struct{}{}
			}
		}
		return nil
	}))
}

// A113: authentication is enabled under sessions whose clients have credentials. What is held lives on, through
// the next renewals, and what waits continues.
func TestAuthEnabledUnderASession(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{Members: 3})
	f := fixture{testkit.On(t, c)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", f.Root))
	worker := func() *embedtest.Client {
		return c.NewClient(t, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	}
	one, two := worker(), worker()
	opts, reported := traced(&concurrency.SessionOptions{TTL: 15 * time.Second}) // a busy machine may take seconds to log in
	s1, s2 := f.SessionOn(one.Client, opts), f.SessionOn(two.Client, opts)
	p := lock(t, s1, "x")
	terms, result := lead(t, ctxT(t), election(t, s1, "x"))
	term := got(t, terms, "it leads")
	w := make(chan answer, 1)
	go func() { p, err := mutex(t, s2, "x").Lock(ctxT(t)); w <- answer{p, err} }()
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 3 }, soon, tick)

	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	for _, client := range []*embedtest.Client{one, two} {
		before := client.Requests()["LeaseKeepAlive.Send"]
		require.Eventually(t, func() bool { return client.Requests()["LeaseKeepAlive.Send"] >= before+3 }, soon, tick)
	}
	require.NoError(t, p.Err())
	require.NoError(t, term.ctx.Err())
	require.Empty(t, reported.lost)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, granted(t, w, "the waiter gets in").Release(ctxT(t)))
	term.end <- nil
	require.NoError(t, got(t, result, "Lead returns"))
}
