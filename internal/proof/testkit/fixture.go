package testkit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Fixture is an etcd, and a prefix in it of the test's own.
type Fixture struct {
	*embedtest.Cluster
	T    testing.TB
	Root string // the prefix of all keys of the test
}

// On uses an etcd that the test has started.
func On(t testing.TB, etcd *embedtest.Cluster) Fixture { return Fixture{etcd, t, etcd.Prefix(t)} }

// Shared uses the etcd that all tests of a package share.
func Shared(t testing.TB) Fixture { return On(t, embedtest.Shared(t)) }

// Own starts an etcd of the test's own, for tests that break it, or count what is requested
// of it. It skips the test on an external cluster, which has other users.
func Own(t testing.TB, members int) Fixture {
	etcd := embedtest.Start(t, &embedtest.Options{Members: members})
	if etcd.External() {
		t.Skip("the external cluster is not this test's own")
	}
	return On(t, etcd)
}

// Session starts a session on a connection of its own: to etcd, another process. Both are
// closed with the test, on a network that is whole again.
func (f Fixture) Session(opts *concurrency.SessionOptions) (*concurrency.Session, *embedtest.Client) {
	f.T.Helper()
	c := f.NewClient(f.T, nil)
	s := f.SessionOn(c.Client, opts)
	f.T.Cleanup(c.Heal) // a session whose client is cut off takes two seconds to close
	return s, c
}

// SessionOn is Session on a client of the caller's.
func (f Fixture) SessionOn(c *clientv3.Client, opts *concurrency.SessionOptions) *concurrency.Session {
	f.T.Helper()
	return SessionOn(f.T, c, f.Root, opts)
}

// Keys lists the keys of the fixture that contain a text.
func (f Fixture) Keys(part string) []string {
	f.T.Helper()
	return Keys(f.T, f.Cluster, f.Root, part)
}

// NoKeys waits until no such key exists: clean-up may be in the background. It looks when a key of
// the fixture has changed, and now and then, in case that a fault of the test ends the watch.
func (f Fixture) NoKeys(part string) {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(Context(f.T), Soon)
	defer cancel()
	changes := f.Client().Watch(ctx, f.Root, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	for {
		left := f.Keys(part)
		if len(left) == 0 {
			return
		}
		select {
		case _, open := <-changes:
			if !open {
				changes = nil
			}
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			require.Empty(f.T, left, "keys with %q are left", part)
		}
	}
}

// Values returns the values of the keys that contain a text.
func (f Fixture) Values(part string) map[string]string {
	f.T.Helper()
	resp, err := f.Client().Get(Context(f.T), f.Root, clientv3.WithPrefix())
	require.NoError(f.T, err)
	found := map[string]string{}
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), part) {
			found[string(kv.Key)] = string(kv.Value)
		}
	}
	return found
}
