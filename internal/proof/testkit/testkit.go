// Package testkit is what the tests of the product begin with: sessions on clients of
// their own, the keys in etcd, and bounded waits for signals. It is for tests
// only.
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

// Soon bounds what should happen at once. It is far above what it takes, and far below go
// test's own limit.
const Soon = time.Minute

// Context returns a ctx that ends with the test, and before go test's own limit.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Quick are the options of a session that is lost soon when it cannot renew, and not if
// its process is stopped for a second.
func Quick() *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: 4 * time.Second, Margin: time.Second}
}

// Brisk are the options of a session that renews every other second, and that a busy
// machine does not cost its lease.
func Brisk() *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: 6 * time.Second, Margin: 500 * time.Millisecond}
}

// Grace is how long the end of a test waits for what its sessions still hold. Many tests end while they hold
// permits, so it is short.
const Grace = 50 * time.Millisecond

// SessionOn starts a session below a prefix, on a client of the caller's. It is closed with
// the test.
func SessionOn(t testing.TB, c *clientv3.Client, prefix string, opts *concurrency.SessionOptions) *concurrency.Session {
	t.Helper()
	var o concurrency.SessionOptions
	if opts != nil {
		o = *opts
	}
	o.Prefix = prefix
	s, err := concurrency.NewSession(Context(t), c, "test", &o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Grace)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// Keys lists the keys below a prefix that contain a text.
func Keys(t testing.TB, etcd *embedtest.Cluster, prefix, part string) (found []string) {
	t.Helper()
	resp, err := etcd.Client().Get(Context(t), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), part) {
			found = append(found, string(kv.Key))
		}
	}
	return found
}

// Closed waits until a channel is closed.
func Closed(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(Soon):
		require.FailNow(t, "did not happen: "+what)
	}
}

// Got receives the result of a goroutine.
func Got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Soon):
		require.FailNow(t, "did not happen: "+what)
		panic("not reached")
	}
}
