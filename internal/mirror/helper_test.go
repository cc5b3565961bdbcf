package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

const soon = 30 * time.Second

var ctxT = testkit.Context

// copied is a handler that keeps a copy of the range and checks what every handler
// may rely on: revisions never go back, and each call of Apply is one revision.
type copied struct {
	t *testing.T

	mu       sync.Mutex
	kvs      map[string]string
	revision int64
	resets   int
	applied  []int // events per call of Apply
	changed  chan struct{}
}

func (c *copied) Reset(kvs []*mvccpb.KeyValue, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision < c.revision {
		c.t.Errorf("reset to revision %d after %d", revision, c.revision)
	}
	c.kvs = map[string]string{}
	for _, kv := range kvs {
		c.kvs[string(kv.Key)] = string(kv.Value)
	}
	c.resets++
	c.change(revision)
}

func (c *copied) Apply(events []*clientv3.Event, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision <= c.revision {
		c.t.Errorf("events of revision %d after %d", revision, c.revision)
	}
	for _, ev := range events {
		if ev.Kv.ModRevision != revision {
			c.t.Errorf("event of revision %d among those of %d", ev.Kv.ModRevision, revision)
		}
		if ev.Type == clientv3.EventTypeDelete {
			delete(c.kvs, string(ev.Kv.Key))
		} else {
			c.kvs[string(ev.Kv.Key)] = string(ev.Kv.Value)
		}
	}
	c.applied = append(c.applied, len(events))
	c.change(revision)
}

func (c *copied) change(revision int64) {
	c.revision = revision
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits until the copy satisfies ok.
func (c *copied) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.After(soon)
	for {
		c.mu.Lock()
		done, changed := ok(), c.changed
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			require.FailNow(c.t, "did not happen: "+what)
		}
	}
}

func (c *copied) shows(want map[string]string) {
	c.t.Helper()
	c.until(fmt.Sprintf("the copy shows %v", want), func() bool { return maps.Equal(c.kvs, want) })
}

func newCopy(t *testing.T) *copied {
	return &copied{t: t, kvs: map[string]string{}, changed: make(chan struct{})}
}

type fixture struct {
	t       *testing.T
	cluster *embedtest.Cluster
	client  *embedtest.Client
	writer  *clientv3.Client // another process's
	prefix  string
	source  *mirror.Source
	copy    *copied
	want    map[string]string
}

// follow runs until the test's end, which it does not outlive.
func (f *fixture) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.source.Follow(ctx, f.prefix, 0, f.copy); close(done) }()
	f.t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(soon):
			f.t.Error("Follow does not end with its ctx")
		}
	})
}

func (f *fixture) put(key, value string) {
	f.t.Helper()
	_, err := f.writer.Put(ctxT(f.t), f.prefix+key, value)
	require.NoError(f.t, err)
	f.want[f.prefix+key] = value
}

func (f *fixture) del(key string) {
	f.t.Helper()
	_, err := f.writer.Delete(ctxT(f.t), f.prefix+key)
	require.NoError(f.t, err)
	delete(f.want, f.prefix+key)
}

func (f *fixture) upToDate() { f.t.Helper(); f.copy.shows(maps.Clone(f.want)) }

func (f *fixture) resets() int {
	f.copy.mu.Lock()
	defer f.copy.mu.Unlock()
	return f.copy.resets
}

func newFixture(t *testing.T, c *embedtest.Cluster, o *embedtest.ClientOptions) *fixture {
	client := c.NewClient(t, o)
	history := mirror.NewHistory()
	return &fixture{
		t: t, cluster: c, client: client, writer: c.Client(), prefix: c.Prefix(t), copy: newCopy(t), want: map[string]string{},
		source: &mirror.Source{
			KV: client, Watcher: client, Log: zap.NewNop(),
			Seen: func() {}, History: func() *mirror.History { return history }, Rewound: func(*mirror.History) {},
		},
	}
}
