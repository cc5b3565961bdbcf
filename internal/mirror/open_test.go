package mirror_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A watch answers probes before anything is written, and reports no event from before its first revision.
func TestOpen(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Own(t, 1), testkit.Context(t)
	c := f.NewClient(t, nil)
	last, err := c.Put(ctx, f.Root+"/before", "1")
	require.NoError(t, err)
	source := mirror.Source{KV: c.KV, Watcher: c.Watcher, Log: zap.NewNop()}
	seen, written := errors.New("seen"), false
	var keys []string
	require.ErrorIs(t, source.Open(ctx, mirror.Opening{
		Prefix: f.Root + "/", From: last.Header.Revision + 1, Probe: time.Second,
		Received: func(resp clientv3.WatchResponse) error {
			for _, ev := range resp.Events {
				keys = append(keys, string(ev.Kv.Key))
			}
			switch {
			case len(keys) > 0 && written:
				return seen
			case resp.IsProgressNotify() && !written:
				written = true
				_, err := c.Put(context.WithoutCancel(ctx), f.Root+"/after", "1")
				return err
			}
			return nil
		},
		Period: time.Hour, Tick: func() error { return nil },
	}), seen)
	require.Equal(t, []string{f.Root + "/after"}, keys)
}
