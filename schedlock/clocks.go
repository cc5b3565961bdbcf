package schedlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// beat is the interval in which a process publishes its time.
const beat = time.Minute

// samples is the number of readings of another clock that are kept. Each is too low by the time
// that its event took, so the greatest is the best.
const samples = 4

// Clock is the wall clock of another process, as this process sees it.
type Clock struct {
	Owner string
	Lease clientv3.LeaseID
	// Ahead is the difference to this process's clock; it is negative if the other clock is behind.
	// If Known is false no reading has arrived yet, and Ahead is 0. The error is about the time
	// that an event takes.
	Ahead time.Duration
	Known bool
}

// clocks has the processes that run jobs of the namespace, and their clocks. It is a
// mirror.Handler, and safe for concurrent use.
type clocks struct {
	space keyspace.Space
	now   func() time.Time

	mu     sync.Mutex
	listed bool             // the processes were read once
	peers  map[string]*peer // by key
}

type peer struct {
	lease   int64
	owner   string
	mod     int64
	offsets []time.Duration
}

// publish keeps this process's own key in etcd, with its time, until ctx ends.
func (c *clocks) publish(ctx context.Context, sess *engine.Session, every time.Duration) {
	for ctx.Err() == nil {
		e, err := sess.Live(ctx)
		if err != nil {
			return // closed, or ctx has ended
		}
		value := record.Clock{Owner: sess.Owner(), AtMS: c.now().UnixMilli()}.Encode()
		call, cancel := commit.Call(ctx)
		_, err = sess.Etcd().Put(call, c.space.Clock(int64(e.Lease())), value, clientv3.WithLease(e.Lease()))
		cancel()
		wait := every
		if err != nil {
			wait = min(every, 5*time.Second)
		}
		select {
		case <-time.After(wait):
		case <-e.Context().Done():
		case <-ctx.Done():
		}
	}
}

// Reset implements mirror.Handler. What was listed may be old, so it is no reading of a clock.
func (c *clocks) Reset(kvs []*mvccpb.KeyValue, _ int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stand := make(map[string]*peer, len(kvs))
	for _, kv := range kvs {
		if p := c.peerOf(kv); p != nil {
			stand[string(kv.Key)] = p
		}
	}
	c.listed, c.peers = true, stand
}

// Apply implements mirror.Handler.
func (c *clocks) Apply(events []*clientv3.Event, _ int64) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ev := range events {
		if ev.Type == clientv3.EventTypeDelete {
			delete(c.peers, string(ev.Kv.Key))
			continue
		}
		if p := c.peerOf(ev.Kv); p != nil {
			c.peers[string(ev.Kv.Key)] = p
			if r, ok := record.DecodeClock(ev.Kv.Value); ok {
				p.offsets = append(p.offsets, time.UnixMilli(r.AtMS).Sub(now))
				p.offsets = p.offsets[max(0, len(p.offsets)-samples):]
			}
		}
	}
}

// peerOf returns the process that has put a key, or nil if the key is not one of a clock. That of a later release may
// have no time that this one can read.
func (c *clocks) peerOf(kv *mvccpb.KeyValue) *peer {
	r, ok := record.DecodeClock(kv.Value)
	if !ok && !later(kv) || kv.Lease == 0 || string(kv.Key) != c.space.Clock(kv.Lease) {
		return nil
	}
	p := c.peers[string(kv.Key)]
	if p == nil {
		p = &peer{lease: kv.Lease}
	}
	p.owner, p.mod = r.Owner, kv.ModRevision
	return p
}

// leases returns the leases of the processes.
func (c *clocks) leases() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]int64, 0, len(c.peers))
	for _, p := range c.peers {
		out = append(out, p.lease)
	}
	return out
}

// list returns all clocks except this process's own.
func (c *clocks) list(own clientv3.LeaseID) []Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Clock
	for _, p := range c.peers {
		if clientv3.LeaseID(p.lease) == own {
			continue
		}
		k := Clock{Owner: p.owner, Lease: clientv3.LeaseID(p.lease), Known: len(p.offsets) > 0}
		if k.Known {
			k.Ahead = slices.Max(p.offsets)
		}
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Clock) int { return cmp.Compare(a.Lease, b.Lease) })
	return out
}

// fleetTime returns the time by this process's clock or, if that is too far from the clocks of the processes
// that run jobs, the nearest time that is not. kvs are their keys. A wrong clock is logged.
func fleetTime(l *Locker, kvs []*mvccpb.KeyValue) time.Time {
	now := l.opts.Now()
	var seen []time.Time
	for _, kv := range kvs {
		if r, ok := record.DecodeClock(kv.Value); ok && kv.Lease != int64(l.sess.Lease()) {
			seen = append(seen, time.UnixMilli(r.AtMS))
		}
	}
	in := within(now, seen)
	if off := now.Sub(in); off != 0 {
		l.log.Warn("the clock of this process differs from those of the processes that run jobs, by this or more; theirs counts", zap.Duration("ahead", off), zap.Time("theirs", in))
	}
	return in
}

// within returns now if it can be the time of processes that have published these times, each within the
// last beat, or otherwise the nearest time that can. The median counts: one of the clocks may be wrong.
func within(now time.Time, seen []time.Time) time.Time {
	if len(seen) == 0 {
		return now
	}
	slices.SortFunc(seen, time.Time.Compare)
	earliest := seen[len(seen)/2]
	latest := seen[len(seen)/2].Add(beat + late)
	if len(seen)%2 == 0 {
		earliest = seen[len(seen)/2-1]
	}
	switch {
	case now.Before(earliest.Add(-late)):
		return earliest
	case now.After(latest):
		return latest
	}
	return now
}

// late is how much later than planned a process may publish its time, and by how much clocks differ that are
// right.
const late = 10 * time.Second

// slowest returns the time of the slowest clock, and false if there is, or may be, a clock that is
// not known yet.
func (c *clocks) slowest(own clientv3.LeaseID) (time.Time, bool) {
	c.mu.Lock()
	listed := c.listed
	c.mu.Unlock()
	if !listed {
		return time.Time{}, false
	}
	var behind time.Duration
	for _, k := range c.list(own) {
		if !k.Known {
			return time.Time{}, false
		}
		behind = min(behind, k.Ahead)
	}
	return c.now().Add(behind), true
}
