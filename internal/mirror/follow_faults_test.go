package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// F32, T6: history is compacted between list and watch, and while the connection
// is down. The mirror lists again and continues.
func TestFollowThroughCompaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Start(t, nil), nil)
	inj := f.client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldResponse})
	f.follow()
	require.NoError(t, inj.WaitHit(ctxT(t)))
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
	require.Greater(t, f.resets(), resets, "what the watch has missed is compacted: only a list can show it")
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
			require.Positive(t, inj.Hits())
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
		require.NoError(t, inj.WaitHit(ctxT(t)))
		f.put("a", fmt.Sprint(end))
		f.upToDate()
		require.Equal(t, 2, inj.Hits())
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
// shown.
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
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.given == 3 }, soon, 5*time.Millisecond)
	f.put("b", "1")
	f.upToDate()
}

// slots returns the keys of a queue, and a constructor of its requests: all of one session, each in a slot of its own.
func slots(t *testing.T) (keyspace.Queue, func(slot int, create int64) *mvccpb.KeyValue) {
	t.Helper()
	space, err := keyspace.New("/p", "n")
	require.NoError(t, err)
	keys := space.Queue(keyspace.Mutex, "x")
	return keys, func(slot int, create int64) *mvccpb.KeyValue {
		key := keys.Slot(keyspace.Slot{Lease: 7, Number: slot, Weight: 1})
		return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: create, ModRevision: create, Lease: 7}
	}
}

// A request that was admitted in a history that was taken back has never existed.
func TestMirrorAfterARestore(t *testing.T) {
	t.Parallel()
	keys, request := slots(t)
	m := mirror.New(keys, 1)
	m.Reset([]*mvccpb.KeyValue{request(0, 90), request(3, 95)}, 100)
	w := m.Wait(string(request(3, 95).Key), 95, 1, mirror.Found{})
	m.Reset([]*mvccpb.KeyValue{request(1, 10), request(2, 20)}, 50)
	v, _ := m.View()
	require.EqualValues(t, 50, v.Revision)
	require.Len(t, v.Holders, 1)
	require.Len(t, v.Waiters, 1)
	require.Equal(t, mirror.Gone, <-w.Outcome())
}

// A782: a watch has lost the end of one request and the beginning of another, so that it shows as many before a waiting one as
// its Txn has counted. Then the first one's key is used again, and the view has none before the waiting request: a list has to
// show that one is. Once it has, the key may be used as often as it likes.
func TestMirrorDoubtsAKeyThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	keys, request := slots(t)
	m := mirror.New(keys, 1)
	put := func(kv *mvccpb.KeyValue) {
		m.Apply([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}}, kv.CreateRevision)
	}
	m.Reset([]*mvccpb.KeyValue{request(0, 10)}, 10)
	// Lost: the end of 0 at 11, the beginning of 1 at 12.
	put(request(2, 13))
	w := m.Wait(string(request(2, 13).Key), 13, 1, mirror.Found{Known: true, Ahead: 1})
	put(request(0, 14))
	require.Empty(t, w.Outcome(), "admitted beside 1")
	require.Len(t, m.Again(), 1)
	m.Reset([]*mvccpb.KeyValue{request(0, 14), request(1, 12), request(2, 13)}, 14)
	require.Empty(t, w.Outcome())
	m.Apply([]*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: request(1, 12).Key, ModRevision: 15}}}, 15)
	require.Equal(t, mirror.Admitted, <-w.Outcome())
	later := m.Wait(string(request(0, 14).Key), 14, 1, mirror.Found{Known: true, Ahead: 1})
	put(request(2, 17)) // lost: the end of 2 at 16
	require.Equal(t, mirror.Admitted, <-later.Outcome())
}

// A backup was restored: every list is older than what was seen, and stays so. Then
// that is the truth.
func TestFollowAfterARestore(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a restore: 5 s")
	}
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	f.put("a", "1")
	m := mirror.New(keyspace.Queue{Range: f.prefix, Requests: f.prefix + "queue/"}, 1)
	ctx, cancel := context.WithCancel(ctxT(t))
	done := make(chan struct{})
	go func() { f.source.Follow(ctx, f.prefix, 1<<40, m); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	require.Eventually(t, func() bool { v, _ := m.View(); return v.Foreign == 1 }, soon, 5*time.Millisecond)
	f.put("b", "1")
	require.Eventually(t, func() bool { v, _ := m.View(); return v.Foreign == 2 }, soon, 5*time.Millisecond)
}

// F33, T33: the watch is at a member that loses its leader. It moves to another
// one.
func TestFollowMovesFromMemberWithoutLeader(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{Members: 3})
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
		f.writer = c.NewClient(t, &embedtest.ClientOptions{Endpoints: c.Endpoints()[leader : leader+1]}).Client
		f.follow()
		f.put("a", "1")
		f.upToDate()
		require.NoError(t, c.CutPeers(i))
		f.put("a", "2")
		f.upToDate()
		require.NoError(t, c.HealPeers(i))
		_, err := c.WaitLeader(ctxT(t))
		require.NoError(t, err)
	}
}

// F36: the token with which the watch's stream was opened runs out. A new watch on
// it is refused; it moves to a new stream, with a new token.
func TestFollowBeyondItsToken(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a token to run out: 2.5 s")
	}
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
	require.Less(t, f.client.Requests()["Authenticate"], 50)
}

// etcd is away for a while. That leaves no streams behind, and one that was never
// opened delays no caller.
func TestFollowLeavesNoStreams(t *testing.T) {
	t.Parallel()
	// abandoned ends watches before, while and just after they are created, and reports whether etcd created
	// each of them in the moment that it gets for that: otherwise the stream stays, see Source.watch.
	abandoned := func(f *fixture) (inTime bool) {
		inTime = true
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			f.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.Pass, Before: cancel, Match: creates})
			began := time.Now()
			f.source.Follow(ctx, f.prefix, 0, f.copy)
			cancel()
			inTime = inTime && time.Since(began) < 150*time.Millisecond
			ctx, cancel = context.WithTimeout(t.Context(), time.Microsecond)
			began = time.Now()
			f.source.Follow(ctx, f.prefix, 0, f.copy)
			cancel()
			inTime = inTime && time.Since(began) < 150*time.Millisecond
		}
		return inTime
	}
	f := newFixture(t, embedtest.Shared(t), nil)
	for tries := 1; !abandoned(f); tries++ {
		if tries == 20 {
			t.Skip("this machine is too slow to create 20 watches in 150 ms each")
		}
		f = newFixture(t, embedtest.Shared(t), nil)
	}
	require.Eventually(t, func() bool { return len(f.client.OpenStreams()) == 0 }, soon, 5*time.Millisecond, "%v", f.client.OpenStreams())
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
	if testing.Short() {
		t.Skip("it waits until a watch counts as stuck: 5 s")
	}
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	inj := f.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldRequest, Match: creates})
	f.follow()
	f.put("a", "1")
	require.NoError(t, inj.WaitHit(ctxT(t)))
	f.upToDate()
}

// creates picks the requests that create a watch, and no late answer to an earlier one.
func creates(_ string, m any) bool {
	r, ok := m.(*etcdserverpb.WatchRequest)
	return ok && r.GetCreateRequest() != nil
}
