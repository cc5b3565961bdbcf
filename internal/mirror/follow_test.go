package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

const soon = 20 * time.Second

func ctxT(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

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

func newCopy(t *testing.T) *copied {
	return &copied{t: t, kvs: map[string]string{}, changed: make(chan struct{})}
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

type fixture struct {
	t       *testing.T
	cluster *embedtest.Cluster
	client  *embedtest.Client
	writer  *clientv3.Client // somebody else's
	prefix  string
	source  *mirror.Source
	copy    *copied
	want    map[string]string
}

func newFixture(t *testing.T, c *embedtest.Cluster, o *embedtest.ClientOptions) *fixture {
	client := c.NewClientWith(t, o)
	return &fixture{
		t: t, cluster: c, client: client, writer: c.Client(), prefix: c.Prefix(t), copy: newCopy(t), want: map[string]string{},
		source: &mirror.Source{KV: client, Watcher: client, Log: zap.NewNop()},
	}
}

// follow runs until the test's end, which it does not outlive.
func (f *fixture) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.source.Follow(ctx, f.prefix, f.copy); close(done) }()
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

// T4: the events of one revision come together; what was there before comes by
// the list; one watch and one list do for all of it.
func TestFollow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	f.put("a", "1")
	f.follow()
	f.upToDate()
	f.put("b", "2")
	f.del("a")
	f.upToDate()
	_, err := f.cluster.Client().Txn(ctxT(t)).Then(
		clientv3.OpPut(f.prefix+"c", "3"), clientv3.OpDelete(f.prefix+"b"), clientv3.OpPut(f.prefix+"d", "4")).Commit()
	require.NoError(t, err)
	f.copy.shows(map[string]string{f.prefix + "c": "3", f.prefix + "d": "4"})
	require.Equal(t, 1, f.resets())
	f.copy.mu.Lock()
	require.Equal(t, []int{1, 1, 3}, f.copy.applied)
	f.copy.mu.Unlock()
	r := f.client.Requests()
	require.Equal(t, []int{1, 1}, []int{r["Watch.Send"], r["Range"]}, "%v", r)
}

// Changes between the creation of the watch and the list are neither lost nor
// applied twice.
func TestFollowChangesDuringList(t *testing.T) {
	t.Parallel()
	for _, do := range []embedtest.Action{embedtest.HoldRequest, embedtest.HoldAnswer} {
		f := newFixture(t, embedtest.Shared(t), nil)
		f.put("x", "before")
		inj := f.client.Inject(embedtest.Fault{Method: "Range", Do: do})
		f.follow()
		require.NoError(t, inj.Wait(ctxT(t)))
		f.put("a", "1")
		f.put("b", "1")
		f.del("b")
		require.NoError(t, inj.Release())
		f.upToDate()
	}
}

// F32, T6: history is compacted between list and watch, and while the connection
// is down. The mirror lists anew and goes on.
func TestFollowThroughCompaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Start(t, nil), nil)
	inj := f.client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldAnswer})
	f.follow()
	require.NoError(t, inj.Wait(ctxT(t)))
	for i := range 5 {
		f.put("a", fmt.Sprint(i))
	}
	_, err := f.cluster.Compact(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, inj.Release())
	f.upToDate()

	resets := f.resets()
	f.client.Cut()
	f.put("b", "1")
	f.del("a")
	f.put("c", "1")
	_, err = f.cluster.Compact(ctxT(t))
	require.NoError(t, err)
	f.client.Heal()
	f.upToDate()
	require.Greater(t, f.resets(), resets, "what the watch has missed is compacted: only a list can tell")
}

// F35: whatever ends the watch, it is set up anew.
func TestFollowThroughBrokenWatches(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"unavailable": nil, "no leader": rpctypes.ErrGRPCNoLeader, "bad token": rpctypes.ErrGRPCInvalidAuthToken,
		"denied": rpctypes.ErrGRPCPermissionDenied, "cancelled": rpctypes.ErrGRPCWatchCanceled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, embedtest.Shared(t), nil)
			f.put("a", "0")
			f.follow()
			f.upToDate()
			inj := f.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith, Times: 3, Err: err})
			for i := range 5 {
				f.put("a", fmt.Sprint(i+1))
				f.upToDate()
			}
			require.Positive(t, inj.Struck())
		})
	}
}

// F35: the server cancels the watch, without a reason, and lists fail.
func TestFollowCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	w := &watcher{Watcher: f.client}
	f.source.Watcher = w
	f.follow()
	f.put("a", "1")
	f.upToDate()
	for _, end := range []clientv3.WatchResponse{{Canceled: true}, {CompactRevision: 5}, {}} {
		inj := f.client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.FailWith, Times: 2, Err: errors.New("?")})
		w.end(end)
		require.NoError(t, inj.Wait(ctxT(t)))
		f.put("a", fmt.Sprint(end))
		f.upToDate()
		require.Equal(t, 2, inj.Struck())
	}
}

// watcher wraps a real one. It can end all watches, or swallow their next events.
type watcher struct {
	clientv3.Watcher

	mu      sync.Mutex
	ends    []chan clientv3.WatchResponse
	swallow int
	eaten   int
}

func (w *watcher) end(r clientv3.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.ends {
		ch <- r
	}
	w.ends = nil
}

func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in, out, end := w.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse), make(chan clientv3.WatchResponse, 1)
	w.mu.Lock()
	w.ends = append(w.ends, end)
	w.mu.Unlock()
	go func() {
		defer close(out)
		for {
			var r clientv3.WatchResponse
			last := false
			select {
			case resp, ok := <-in:
				if !ok {
					return
				}
				r = resp
			case r = <-end:
				last = true
			}
			w.mu.Lock()
			eat := w.swallow > 0 && len(r.Events) > 0
			if eat {
				w.swallow--
				w.eaten++
			}
			w.mu.Unlock()
			if eat {
				continue
			}
			if !last || r.Canceled || r.CompactRevision > 0 {
				select {
				case out <- r:
				case <-ctx.Done():
					return
				}
			}
			if last {
				return
			}
		}
	}()
	return out
}

// F34: events are lost on the way. The next refresh finds what they would have
// told.
func TestFollowHealsLostEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	w := &watcher{Watcher: f.client}
	f.source.Watcher, f.source.Refresh = w, 200*time.Millisecond
	f.follow()
	f.put("a", "1")
	f.upToDate()
	w.mu.Lock()
	w.swallow = 1
	w.mu.Unlock()
	f.del("a")
	f.upToDate()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, 1, w.eaten)
}

// reader wraps a real KV whose answers can be of the past.
type reader struct {
	clientv3.KV

	mu    sync.Mutex
	past  int // answers that are old
	stale *clientv3.GetResponse
	given int
}

func (r *reader) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := r.KV.Get(ctx, key, opts...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale != nil && r.past > 0 {
		r.past--
		r.given++
		return r.stale, nil
	}
	if err == nil && r.stale == nil {
		r.stale = resp
	}
	return resp, err
}

// F37: a list that is older than what was seen is not believed. (The handler
// fails the test if it is.)
func TestFollowRejectsStaleLists(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	r := &reader{KV: f.client}
	f.source.KV, f.source.Refresh = r, 100*time.Millisecond
	f.put("a", "old")
	f.follow()
	f.upToDate()
	f.put("a", "new")
	f.upToDate()
	r.mu.Lock()
	r.past = 3
	r.mu.Unlock()
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.given == 3 }, soon, time.Millisecond)
	f.put("b", "1")
	f.upToDate()
}

// F33, T33: the watch is at a member that loses its leader. It moves to another
// one.
func TestFollowMovesFromMemberWithoutLeader(t *testing.T) {
	t.Parallel()
	c := embedtest.StartCluster(t, 3, nil)
	leader, err := c.WaitLeader(ctxT(t))
	require.NoError(t, err)
	// All members but the leader, so that the watch is at one that can be cut.
	var eps []string
	for i, ep := range c.Endpoints() {
		if i != leader {
			eps = append(eps, ep)
		}
	}
	for i := range c.Endpoints() {
		if i == leader {
			continue
		}
		f := newFixture(t, c, &embedtest.ClientOptions{Endpoints: eps})
		f.writer = c.NewClientWith(t, &embedtest.ClientOptions{Member: &leader}).Client
		f.follow()
		f.put("a", "1")
		f.upToDate()
		require.NoError(t, c.CutPeers(i))
		f.put("a", "2")
		f.upToDate()
		require.NoError(t, c.MendPeers(i))
		_, err := c.WaitLeader(ctxT(t))
		require.NoError(t, err)
	}
}

// F36: the token with which the watch's stream was opened runs out. A new watch on
// it is refused; it moves to a new stream, with a new token.
func TestFollowBeyondItsToken(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{AuthTokenTTL: time.Second})
	prefix := c.Prefix(t)
	require.NoError(t, c.AddUser(ctxT(t), "worker", "secret", prefix))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	f := newFixture(t, c, &embedtest.ClientOptions{Username: "worker", Password: "secret"})
	f.prefix = prefix + "one/"
	f.follow()
	f.put("a", "1")
	f.upToDate()
	time.Sleep(2500 * time.Millisecond) // a token's life and the sweep after it
	// The first watch keeps the old stream open; a second one comes to it.
	g := *f
	g.prefix, g.copy, g.want = prefix+"two/", newCopy(t), map[string]string{}
	g.follow()
	g.put("a", "1")
	g.upToDate()
	f.put("a", "2")
	f.upToDate()
	require.Less(t, f.client.Requests()["Authenticate"], 10)
}

// etcd is away for a while. That leaves no streams behind, and one that was never
// opened keeps nobody waiting.
func TestFollowLeavesNoStreams(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	for range 10 { // ended before, while and just after the watch is created
		ctx, cancel := context.WithCancel(t.Context())
		f.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.Pass, Before: cancel})
		f.source.Follow(ctx, f.prefix, f.copy)
		ctx, cancel = context.WithTimeout(t.Context(), time.Microsecond)
		f.source.Follow(ctx, f.prefix, f.copy)
		cancel()
	}
	require.Eventually(t, func() bool { return len(f.client.OpenStreams()) == 0 }, soon, time.Millisecond, "%v", f.client.OpenStreams())
	f.follow()
	f.put("a", "1")
	f.upToDate()
	f.client.BlackHole()
	time.Sleep(100 * time.Millisecond)
	f.client.Cut()
	f.put("a", "2")
	f.client.Heal()
	f.upToDate()
	require.LessOrEqual(t, f.client.OpenStreams()["Watch"], 1)
}

// F33: a watch that is never created is given up after a time.
func TestFollowStuckWatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	inj := f.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldRequest, Match: func(_ string, m any) bool {
		r, ok := m.(*etcdserverpb.WatchRequest)
		return ok && r.GetCreateRequest() != nil
	}})
	f.follow()
	f.put("a", "1")
	require.NoError(t, inj.Wait(ctxT(t)))
	f.upToDate()
}
