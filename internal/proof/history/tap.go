package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Tap records every put and delete below a prefix, each with the time at which
// it was first seen here.
//
// It watches from the revision at which it begins, by any number of clients: give
// it one for each member, each pinned to its member and touched by no nemesis.
// A watch that was away while etcd was compacted has a hole; another one may have
// seen what is missing. Only what none has seen is a gap, and then the history
// says so: it cannot be judged.
type Tap struct {
	recorder *Recorder
	prefix   string
	first    int64 // revision
	cancel   context.CancelFunc
	done     sync.WaitGroup
	clients  []*clientv3.Client

	mu      sync.Mutex
	seen    map[int64]bool
	sights  []sight
	changed chan struct{}
}

// sight is a stretch of revisions that one watch has seen without a hole.
type sight struct{ from, to int64 }

// StartTap begins to tap. What is below the prefix already is recorded as put
// by the revision that wrote it last. It returns an error if it cannot list the
// prefix or begin all watches while ctx lasts. Close it before its clients.
func StartTap(ctx context.Context, r *Recorder, prefix string, clients ...*clientv3.Client) (*Tap, error) {
	if len(clients) == 0 {
		return nil, errors.New("a tap needs a client")
	}
	list, err := clients[0].Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("tap %q: %w", prefix, err)
	}
	t := &Tap{recorder: r, prefix: prefix, first: list.Header.Revision, clients: clients, seen: map[int64]bool{}, changed: make(chan struct{})}
	for _, kv := range list.Kvs {
		r.Add(Event{Kind: KindPut, Rev: kv.ModRevision, KV: &KV{
			Key: Bytes(kv.Key), Value: Bytes(kv.Value), Create: kv.CreateRevision, Version: kv.Version, Lease: kv.Lease,
		}, Attr: map[string]string{"listed": "yes"}})
	}
	r.Add(Event{Kind: KindMark, Name: MarkTap, Rev: t.first, Attr: map[string]string{"prefix": prefix}})
	watching, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	created := make(chan struct{}, len(clients))
	for _, c := range clients {
		t.done.Go(func() { t.follow(watching, c, sync.OnceFunc(func() { created <- struct{}{} })) })
	}
	for range clients {
		select {
		case <-created:
		case <-ctx.Done():
			t.Close()
			return nil, fmt.Errorf("tap %q: not all watches have begun: %w", prefix, ctx.Err())
		}
	}
	return t, nil
}

// follow watches by one client until ctx ends.
func (t *Tap) follow(ctx context.Context, c *clientv3.Client, created func()) {
	next := t.first + 1
	for ctx.Err() == nil {
		watch, cancel := context.WithCancel(ctx)
		at := t.begin(next)
		// No WithRequireLeader: a watch at a member that is cut off continues
		// without a hole when it is back.
		for resp := range c.Watch(watch, t.prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify(), clientv3.WithRev(next)) {
			if resp.Created {
				created()
			}
			if resp.CompactRevision > 0 {
				next = max(next, resp.CompactRevision)
			}
			if resp.Err() != nil {
				break
			}
			if len(resp.Events) > 0 {
				next = resp.Events[len(resp.Events)-1].Kv.ModRevision + 1
				t.take(at, resp.Events)
			}
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// begin notes that a watch begins at a revision.
func (t *Tap) begin(from int64) (index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sights = append(t.sights, sight{from: from, to: from - 1})
	return len(t.sights) - 1
}

// take records the events of those revisions that no other watch has brought.
func (t *Tap) take(at int, events []*clientv3.Event) {
	now := t.recorder.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < len(events); {
		rev := events[i].Kv.ModRevision
		known := t.seen[rev]
		t.seen[rev] = true
		for ; i < len(events) && events[i].Kv.ModRevision == rev; i++ {
			if !known {
				t.recorder.Add(tapped(now, events[i]))
			}
		}
		t.sights[at].to = rev
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func tapped(now int64, ev *clientv3.Event) Event {
	kind, kv := KindPut, ev.Kv
	if ev.Type == clientv3.EventTypeDelete {
		kind = KindDelete
		if kv = ev.PrevKv; kv == nil { // compacted meanwhile
			return Event{At: now, Kind: kind, Rev: ev.Kv.ModRevision, KV: &KV{Key: Bytes(ev.Kv.Key)}}
		}
	}
	return Event{At: now, Kind: kind, Rev: ev.Kv.ModRevision, KV: &KV{
		Key: Bytes(kv.Key), Value: Bytes(kv.Value), Create: kv.CreateRevision, Version: kv.Version, Lease: kv.Lease,
	}}
}

// Through returns the greatest revision up to which nothing is missing now. A
// compaction up to there makes no gap.
func (t *Tap) Through() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.through()
}

func (t *Tap) through() int64 {
	through := t.first
	for grown := true; grown; {
		grown = false
		for _, s := range t.sights {
			if s.from <= through+1 && s.to > through {
				through, grown = s.to, true
			}
		}
	}
	return through
}

// TapMarker is the part of a key's name, after the prefix, by which the tap marks
// a revision of its own. Checkers pass over it.
const TapMarker = "tap/"

// Complete waits until the tap has seen all that was written before the call, and
// records that. It puts and deletes a key of its own. It returns an error if ctx
// ends before; if revisions are missing for good, the history says so too.
func (t *Tap) Complete(ctx context.Context) error {
	if err := t.complete(ctx); err != nil {
		t.recorder.Add(Event{Kind: KindMark, Name: MarkTapGap, Error: err.Error()})
		return err
	}
	return nil
}

func (t *Tap) complete(ctx context.Context) error {
	rev, err := t.mark(ctx)
	if err != nil {
		return fmt.Errorf("tap %q: %w", t.prefix, err)
	}
	for {
		t.mu.Lock()
		changed, through := t.changed, t.through()
		t.mu.Unlock()
		if through >= rev {
			t.recorder.Add(Event{Kind: KindMark, Name: MarkTapComplete, Rev: rev, Attr: map[string]string{"prefix": t.prefix}})
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("tap %q: nothing is known of revisions after %d: %w", t.prefix, through, ctx.Err())
		}
	}
}

// mark puts and deletes the tap's own key, by whichever client gets through, and
// returns the revision of the delete.
func (t *Tap) mark(ctx context.Context) (int64, error) {
	key := t.prefix + TapMarker + "end"
	for i := 0; ; i++ {
		c := t.clients[i%len(t.clients)]
		call, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.Put(call, key, "")
		if err == nil {
			var deleted *clientv3.DeleteResponse
			if deleted, err = c.Delete(call, key); err == nil {
				cancel()
				return deleted.Header.Revision, nil
			}
		}
		cancel()
		select {
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Close ends the tap. What was recorded stays.
func (t *Tap) Close() {
	t.cancel()
	t.done.Wait()
}
