package fleet_test

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// unprobed is a Watcher that passes no question for progress on, as etcd's gRPC proxy does, unless it is open.
type unprobed struct {
	clientv3.Watcher
	open   atomic.Bool
	passed atomic.Int64 // while it was open
}

func (u *unprobed) RequestProgress(ctx context.Context) error {
	if u.open.Load() {
		u.passed.Add(1)
		return u.Watcher.RequestProgress(ctx)
	}
	return nil
}

// Behind a proxy that answers no probe the namespace is read again and again. That is logged once, with the proxy as a
// cause, and again only after a watch has answered.
func TestWatchThatAnswersNoProbe(t *testing.T) {
	t.Parallel()
	f, ctx := testkit.Shared(t), testkit.Context(t)
	s, _ := f.Session(nil)
	space, err := keyspace.New(f.Root, path.Base(s.NamespacePrefix()))
	require.NoError(t, err)
	c := f.NewClient(t, nil)
	core, logs := observer.New(zap.WarnLevel)
	w := &unprobed{Watcher: c.Watcher}
	fl := fleet.New(c.KV, w, space, fleet.Options{Probe: 20 * time.Millisecond, Refresh: time.Hour, Logger: zap.New(core), Now: time.Now})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- fl.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	lists := func() (n int64) {
		fl.View(func(_ *fleet.State, m fleet.Meta) { n = m.Lists })
		return n
	}
	more := func(what string) {
		t.Helper()
		from := lists()
		require.Eventually(t, func() bool { return lists() >= from+3 }, testkit.Soon, time.Millisecond, what)
	}
	more("it is read again and again")
	require.Len(t, logs.All(), 1)
	require.True(t, strings.Contains(logs.All()[0].Message, "the watch of the namespace does not answer") && strings.Contains(logs.All()[0].Message, "gRPC proxy"), logs.All()[0].Message)
	w.open.Store(true)
	before, passed := lists(), w.passed.Load()
	require.Eventually(t, func() bool { // ten probes of one watch: they are answered
		if now := lists(); now != before {
			before, passed = now, w.passed.Load()
		}
		return w.passed.Load() >= passed+10
	}, testkit.Soon, time.Millisecond)
	w.open.Store(false)
	more("it is silent again")
	require.Len(t, logs.All(), 2)
}
