package crowd

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
)

// ownWatches watch what concerns all far requests of a session in a queue: that a key of theirs of
// the first one's weight is deleted, and that the limit changes. They do so while there is a monitor, and a little longer.
type ownWatches struct {
	changed chan struct{} // has a value when the limit may have changed

	mu       sync.Mutex
	monitors int    // how many have joined: one may begin before the former has left
	prefix   string // the prefix of the keys that are watched
	since    time.Time
	stop     context.CancelFunc
	linger   *time.Timer
	sampled  *sample // of the queue, or nil
}

// ownLingers is how long the watches run on without a monitor: under contention the next one comes
// soon.
const ownLingers = 5 * time.Second

// join is for a monitor that begins, and leave for the same when it ends.
func (d *ownWatches) join() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.monitors++
	if d.linger != nil {
		d.linger.Stop()
		d.linger = nil
	}
}

func (d *ownWatches) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.monitors--; d.monitors > 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(ownLingers, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.linger == t {
			d.end()
			d.linger = nil
		}
	})
	d.linger = t
}

func (d *ownWatches) end() {
	if d.stop != nil {
		d.stop()
	}
	d.prefix, d.stop = "", nil
	d.dropSample()
}

// dropSample ends the sample, if there is one. d.mu is held.
func (d *ownWatches) dropSample() {
	if d.sampled != nil {
		d.sampled.stop()
	}
	d.sampled = nil
}

// sample returns the sample of the queue, or nil.
func (d *ownWatches) sample() *sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sampled
}

// replace takes a new sample, whose watches exist, in place of the former one (W14 in internal/proof/tested-failures.md).
func (d *ownWatches) replace(with *sample) {
	d.mu.Lock()
	former := d.sampled
	d.sampled = with
	d.mu.Unlock()
	if former != nil {
		former.stop()
	}
}

// follow watches the keys with a prefix, unless they are watched already, and the limit. Watches that
// are old are renewed (W13 in internal/proof/tested-failures.md), and end when those of the keys exist that
// replace them (W14).
func (d *ownWatches) follow(c *Crowd, prefix string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sampled != nil && !time.Now().Before(d.sampled.until) { // a request that sleeps by it begins another one
		d.dropSample()
	}
	if d.prefix == prefix && time.Since(d.since) < c.Horizon.Renew/2 {
		return
	}
	ctx, stop := context.WithCancel(c.Session.Context())
	former := func() {}
	if d.stop != nil {
		former = d.stop
	}
	context.AfterFunc(ctx, former) // if etcd is away until then
	d.prefix, d.since, d.stop = prefix, time.Now(), stop
	source := c.Session.Source()
	c.Session.Background(func() {
		source.Listen(ctx, prefix, func() { former(); c.findGone(ctx, prefix) }, func(events []*clientv3.Event) {
			for _, ev := range events {
				c.waiters.wake(string(ev.Kv.Key))
			}
		}, clientv3.WithFilterPut())
	})
	if c.Limit.Fixed() > 0 {
		return
	}
	c.Session.Background(func() {
		source.Listen(ctx, c.Keys.Limit, func() { signal(d.changed) }, func(events []*clientv3.Event) {
			for _, ev := range events {
				if ev.Type != clientv3.EventTypeDelete && string(ev.Kv.Key) == c.Keys.Limit {
					_, _, _ = c.Limit.Learn(limit.Records{Own: ev.Kv})
				}
			}
			signal(d.changed)
		})
	})
}

// findGone wakes the requests whose keys, which begin with prefix, are gone: from before the watch, which does not
// report that.
func (c *Crowd) findGone(ctx context.Context, prefix string) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
		return c.Session.KV().Get(call, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	})
	if err != nil {
		return
	}
	there := map[string]int64{}
	for _, kv := range resp.Kvs {
		there[string(kv.Key)] = kv.CreateRevision
	}
	c.waiters.wakeIf(func(s *Waiter) bool {
		return strings.HasPrefix(s.Key, prefix) && s.shownAt(resp.Header.Revision) == nil && there[s.Key] != s.Token
	})
}
