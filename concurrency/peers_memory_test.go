package concurrency

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// P13: a limiter keeps nothing of keys that were used and are idle, in this process and in etcd: neither
// of those that were admitted, nor of those that were refused or gave up.
func TestPeerP13IdleKeysLeaveNothing(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	prefix := c.Prefix(t)
	s, err := NewSession(ctx, c.Client(), "test", &SessionOptions{Prefix: prefix})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(ctx)) }()
	lim, err := NewKeyedLimiter(s, "llm", 1, &KeyedLimiterOptions{Total: 2})
	require.NoError(t, err)
	for i := range 60 {
		sem := lim.Key(fmt.Sprint("user ", i))
		p, err := sem.Acquire(ctx)
		require.NoError(t, err)
		if i%5 == 0 {
			_, err = sem.TryAcquire(ctx)
			require.ErrorIs(t, err, ErrFull)
		}
		if i%20 == 0 {
			_, err = sem.Acquire(ctx, Wait(5*time.Millisecond))
			require.Error(t, err)
		}
		require.NoError(t, p.Release(ctx))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		own := engine.Own(s)
		own.mu.Lock()
		defer own.mu.Unlock()
		return len(own.queues.of) == 1 && len(own.bases.of) == 1
	}, time.Minute, 50*time.Millisecond, "the total and the default are kept, and no key")
	require.Eventually(t, func() bool {
		resp, err := c.Client().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && !slices.ContainsFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return strings.Contains(string(kv.Key), "user") })
	}, time.Minute, 20*time.Millisecond)
	runtime.KeepAlive(lim)
}
