package etcdfake_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// bubble runs f in a bubble, on a server with two clients.
func bubble(t *testing.T, name string, f func(t *testing.T, s *etcdfake.Server, one, two *etcdfake.Client)) {
	t.Helper()
	run := func(t *testing.T) {
		etcdfake.Test(t, func(t *testing.T, s *etcdfake.Server) { f(t, s, s.NewClient(), s.NewClient()) })
	}
	if name == "" {
		run(t)
		return
	}
	t.Run(name, run)
}

// after returns a context that ends after a while.
func after(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// With a watch open, a bubble's time passes and the bubble can end: clientv3 waits for
// nothing from outside of it. If it does in some later release, this fails in a minute,
// and all other tests in bubbles hang.
func TestTimePassesWhileWatching(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		bubble(t, "", func(t *testing.T, _ *etcdfake.Server, one, _ *etcdfake.Client) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			<-one.Watch(ctx, "a", clientv3.WithCreatedNotify())
			time.Sleep(time.Hour)
		})
	}()
	select {
	case <-done:
	case <-time.After(time.Minute): // of a busy machine, too
		panic("a watch of clientv3 keeps the time of a bubble from passing: see bubble.go")
	}
}

// A lease ends on the nanosecond, with all its keys at one revision, and not while it
// is renewed.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, s *etcdfake.Server, one, _ *etcdfake.Client) {
		ctx := context.Background()
		l, err := one.Grant(ctx, 10)
		require.NoError(t, err)
		for _, key := range []string{"b", "a"} {
			_, err = one.Put(ctx, key, "", clientv3.WithLease(l.ID))
			require.NoError(t, err)
		}
		_, err = one.Put(ctx, "b", "") // waits for nothing any more
		require.NoError(t, err)
		_, err = one.Put(ctx, "c", "", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		time.Sleep(9 * time.Second)
		_, err = one.KeepAliveOnce(ctx, l.ID)
		require.NoError(t, err)
		begun, w := time.Now(), one.Watch(ctx, "", clientv3.WithPrefix())
		time.Sleep(10*time.Second - 1)
		require.Equal(t, []string{"a", "b", "c"}, s.Keys(""))
		require.Equal(t, []clientv3.LeaseID{l.ID}, s.Leases())
		resp := <-w
		require.Equal(t, 10*time.Second, time.Since(begun))
		require.Len(t, resp.Events, 2)
		require.Equal(t, resp.Events[0].Kv.ModRevision, resp.Events[1].Kv.ModRevision)
		require.Equal(t, []string{"b"}, s.Keys(""))
		require.Empty(t, s.Leases())
		_, err = one.KeepAliveOnce(ctx, l.ID)
		require.Error(t, err)
	})
}

// Leases go by the server's clock.
func TestShiftClock(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]time.Duration{"forward": 4 * time.Second, "back": -time.Hour, "beyond": time.Hour} {
		bubble(t, name, func(t *testing.T, s *etcdfake.Server, one, _ *etcdfake.Client) {
			_, err := one.Grant(context.Background(), 10)
			require.NoError(t, err)
			s.ShiftClock(to)
			left := max(10*time.Second-to, 0)
			if left > 0 {
				time.Sleep(left - 1)
				require.NotEmpty(t, s.Leases())
				time.Sleep(time.Nanosecond)
			}
			require.Empty(t, s.Leases())
		})
	}
}
