package concurrency

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
)

// distant watches what concerns all far requests of a session in a queue: that one of their keys is
// deleted, and that the limit changes. It does so while there is a guide, and a little longer.
type distant struct {
	changed chan struct{} // has a value when the limit may have changed

	mu     sync.Mutex
	guides int    // how many have joined: one may begin before the former has left
	own    string // the prefix of the keys that are watched
	since  time.Time
	stop   context.CancelFunc
	linger *time.Timer
}

// distantLingers is how long the watches run on without a guide: under contention the next one comes
// soon.
const distantLingers = 5 * time.Second

// join is for a guide that begins, and leave for the same when it ends.
func (d *distant) join() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guides++
	if d.linger != nil {
		d.linger.Stop()
		d.linger = nil
	}
}

func (d *distant) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.guides--; d.guides > 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(distantLingers, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.linger == t {
			d.end()
			d.linger = nil
		}
	})
	d.linger = t
}

func (d *distant) end() {
	if d.stop != nil {
		d.stop()
	}
	d.own, d.stop = "", nil
}

// follow watches the keys with a prefix, unless they are watched already, and the limit. Watches that
// are old are renewed (W13 in internal/proof/tested-failures.md), and end when those of the keys exist that
// replace them (W14).
func (d *distant) follow(q *sessionQueue, own string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == own && time.Since(d.since) < q.horizon.Renew/2 {
		return
	}
	ctx, stop := context.WithCancel(q.sess.Context())
	former := func() {}
	if d.stop != nil {
		former = d.stop
	}
	context.AfterFunc(ctx, former) // if etcd is away until then
	d.own, d.since, d.stop = own, time.Now(), stop
	source := q.sess.Source()
	q.sess.Background(func() {
		source.Listen(ctx, own, func() { former(); q.findGone(ctx, own) }, func(events []*clientv3.Event) {
			for _, ev := range events {
				q.waiters.wake(string(ev.Kv.Key))
			}
		}, clientv3.WithFilterPut())
	})
	if q.limit.Fixed() > 0 {
		return
	}
	q.sess.Background(func() {
		source.Listen(ctx, q.keys.Limit, func() { signal(d.changed) }, func(events []*clientv3.Event) {
			for _, ev := range events {
				if ev.Type != clientv3.EventTypeDelete && string(ev.Kv.Key) == q.keys.Limit {
					_, _, _ = q.limit.Learn(limit.Records{Own: ev.Kv})
				}
			}
			signal(d.changed)
		})
	})
}

// findGone wakes the requests whose keys, which begin with own, are gone: from before the watch, which does not
// report that.
func (q *sessionQueue) findGone(ctx context.Context, own string) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
		return q.sess.KV().Get(call, own, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	})
	if err != nil {
		return
	}
	there := map[string]int64{}
	for _, kv := range resp.Kvs {
		there[string(kv.Key)] = kv.CreateRevision
	}
	q.waiters.wakeIf(func(s *waiter) bool {
		return strings.HasPrefix(s.Key, own) && s.shownAt(resp.Header.Revision) == nil && there[s.Key] != s.Token
	})
}
