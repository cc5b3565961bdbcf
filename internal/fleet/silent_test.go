package fleet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// unprobed is a Watcher that passes no question for progress on, as etcd's gRPC proxy does, unless it is open.
type unprobed struct {
	clientv3.Watcher
	open atomic.Bool
}

func (u *unprobed) RequestProgress(ctx context.Context) error {
	if u.open.Load() {
		return u.Watcher.RequestProgress(ctx)
	}
	return nil
}

// Watch is that of a Fleet without fragments, which etcdfake does not have.
func (u *unprobed) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return u.Watcher.Watch(ctx, key, clientv3.WithPrefix(), clientv3.WithRev(clientv3.OpGet(key, opts...).Rev()), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
}

// Behind a proxy that answers no probe the namespace is read again and again. That is logged once, with the proxy as a
// cause, and again only after a watch has answered. In virtual time: on a busy machine an etcd is silent for longer than some
// probes, too.
func TestWatchThatAnswersNoProbe(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
		space, err := keyspace.New("/etcdkit", "test")
		require.NoError(t, err)
		c := etcd.NewClient()
		core, logs := observer.New(zap.WarnLevel)
		w := &unprobed{Watcher: c.Watcher}
		fl := fleet.New(c.KV, w, space, fleet.Options{Probe: 5 * time.Second, Refresh: 24 * time.Hour, Logger: zap.New(core), Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- fl.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		lists := func() (n int64) { // of the next five minutes
			from := fl.Meta().Lists
			time.Sleep(5 * time.Minute)
			return fl.Meta().Lists - from
		}
		require.Greater(t, lists(), int64(10), "it is read again and again")
		require.Len(t, logs.All(), 1)
		message := logs.All()[0].Message
		require.Contains(t, message, "the watch of the namespace does not answer")
		require.Contains(t, message, "gRPC proxy")
		w.open.Store(true)
		require.LessOrEqual(t, lists(), int64(1), "each probe of the present watch, or of the next one, is answered")
		require.Zero(t, lists())
		require.Len(t, logs.All(), 1)
		w.open.Store(false)
		require.Greater(t, lists(), int64(10), "it is silent again")
		require.Len(t, logs.All(), 2)
	})
}
