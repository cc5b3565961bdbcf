package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// soon bounds what should happen at once; it is far above what it takes, and far
// below go test's own limit.
const soon = 20 * time.Second

func ctxT(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// fixture is one etcd and a prefix of the test's own.
type fixture struct {
	*embedtest.Cluster
	t      testing.TB
	prefix string
}

// shared uses the etcd that all tests of this package share.
func shared(t testing.TB) fixture {
	c := embedtest.Shared(t)
	return fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
}

// own starts an etcd of the test's own, for tests that break it.
func own(t testing.TB, members int) fixture {
	c := embedtest.StartCluster(t, members, nil)
	return fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
}

// quick is the shortest session that a test uses: a TTL of one second.
func quick() *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: time.Second, Margin: 300 * time.Millisecond}
}

// session starts a session on a connection of its own: another process, as far as
// etcd can tell.
func (f fixture) session(opts *concurrency.SessionOptions) (*concurrency.Session, *embedtest.Client) {
	c := f.NewClient(f.t)
	return f.sessionOn(c.Client, opts), c
}

func (f fixture) sessionOn(c *clientv3.Client, opts *concurrency.SessionOptions) *concurrency.Session {
	f.t.Helper()
	var o concurrency.SessionOptions
	if opts != nil {
		o = *opts
	}
	o.Prefix = f.prefix
	s, err := concurrency.NewSession(ctxT(f.t), c, "test", &o)
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

func sem(t testing.TB, s *concurrency.Session, name string, limit int) *concurrency.Semaphore {
	t.Helper()
	sem, err := concurrency.NewSemaphore(s, name, limit, nil)
	require.NoError(t, err)
	return sem
}

func mutex(t testing.TB, s *concurrency.Session, name string) *concurrency.Mutex {
	t.Helper()
	mu, err := concurrency.NewMutex(s, name, nil)
	require.NoError(t, err)
	return mu
}

// closed waits until a channel is closed.
func closed(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(soon):
		require.FailNow(t, "did not happen: "+what)
	}
}

// got receives what a goroutine has to tell.
func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		require.FailNow(t, "did not happen: "+what)
		panic("unreachable")
	}
}

// keys lists what stands in etcd below the test's prefix and part of a key.
func (f fixture) keys(part string) []string {
	f.t.Helper()
	resp, err := f.Client().Get(ctxT(f.t), f.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(f.t, err)
	var out []string
	for _, kv := range resp.Kvs {
		if key := string(kv.Key); contains(key, part) {
			out = append(out, key)
		}
	}
	return out
}

// eventually waits until no such key is left: clean-up in the background.
func (f fixture) noKeys(part string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return len(f.keys(part)) == 0 }, soon, 5*time.Millisecond, "keys are left: %v", f.keys(part))
}
