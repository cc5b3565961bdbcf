package embedtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// patience bounds waits for what must happen. No test passes because it ends.
const patience = time.Minute

// ownServersOnly skips tests that have no meaning on an external cluster, and tests whose
// keys others may use there.
func ownServersOnly(t *testing.T) {
	t.Helper()
	if externalEndpoints() != nil {
		t.Skipf("%v", ErrExternal)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// value returns the value of a key, or "" if it does not exist.
func value(t *testing.T, c *Cluster, key string) string {
	t.Helper()
	resp, err := c.Client().Get(within(t, patience), key)
	require.NoError(t, err)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// below returns the keys with a prefix.
func below(t *testing.T, c *Cluster, prefix string) (keys []string) {
	t.Helper()
	resp, err := c.Client().Get(within(t, patience), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func put(t *testing.T, cl *clientv3.Client, key, val string, opts ...clientv3.OpOption) {
	t.Helper()
	_, err := cl.Put(within(t, patience), key, val, opts...)
	require.NoError(t, err)
}

func grant(t *testing.T, cl *clientv3.Client, ttl int64) clientv3.LeaseID {
	t.Helper()
	resp, err := cl.Grant(within(t, patience), ttl)
	require.NoError(t, err)
	return resp.ID
}

// async runs f on a goroutine and returns a channel with its error.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func result(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("nothing came back")
		return nil
	}
}
