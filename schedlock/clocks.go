package schedlock

import (
	"cmp"
	"context"
	"maps"
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
// that its event took: the greatest is the best estimate of the clock, and the least is a lower bound
// although the clock was set since some of them.
const samples = 4

// unreadable is by how much a clock may be behind that a later release publishes in a form that this one cannot read.
const unreadable = 24 * time.Hour

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
	// For so long the clock of a process that has ended counts as one of the fleet: in an outage all sessions of a fleet end
	// together, and one of them begins again first.
	outlasts time.Duration

	mu     sync.Mutex
	listed bool             // the processes were read once
	peers  map[string]*peer // by key
	gone   []*peer          // that have ended within outlasts
}

type peer struct {
	lease    int64
	owner    string
	mod      int64
	readings []reading
	ended    time.Time // by the monotonic clock, or zero
}

// reading is a time that another process has published. A listed one may be old when it is seen, so it is a lower bound alone.
type reading struct {
	at     time.Time // by its clock
	seen   time.Time // by the monotonic clock of this process, which no step of the wall clock changes
	listed bool
}

// now returns what the other clock shows at least, unless it was set back since the reading.
func (r reading) now() time.Time { return r.at.Add(time.Since(r.seen)) }

// read adds a reading. An event makes those unnecessary that were listed.
func (p *peer) read(kv *mvccpb.KeyValue, listed bool) {
	r, ok := record.DecodeClock(kv.Value)
	if !ok {
		return
	}
	if !listed {
		p.readings = slices.DeleteFunc(p.readings, func(r reading) bool { return r.listed })
	}
	p.readings = append(p.readings, reading{time.UnixMilli(r.AtMS), time.Now(), listed})
	p.readings = p.readings[max(0, len(p.readings)-samples):]
}

// ahead returns by how much the clock differs from a time of this process, and false if no event has shown it yet. A listed
// reading that is later than the events say shows that this process was suspended since them, or that the clock was set.
func (p *peer) ahead(now time.Time) (d time.Duration, known bool) {
	for _, r := range p.readings {
		if off := r.now().Sub(now); !r.listed && (!known || off > d) {
			d, known = off, true
		}
	}
	for _, r := range p.readings {
		if r.listed && r.now().Sub(now) > d+late {
			return 0, false
		}
	}
	return d, known
}

// least returns what the clock shows at least; now is that of this process. It is the least of all readings: if the clock was set
// back, those from before are too great.
func (p *peer) least(now time.Time) time.Time {
	if len(p.readings) == 0 {
		return now.Add(-unreadable)
	}
	least := p.readings[0].now()
	for _, r := range p.readings {
		if r.now().Before(least) {
			least = r.now()
		}
	}
	return least
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

// Reset implements mirror.Handler.
func (c *clocks) Reset(kvs []*mvccpb.KeyValue, _ int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stand := make(map[string]*peer, len(kvs))
	for _, kv := range kvs {
		if p, fresh := c.peerOf(kv); p != nil {
			if fresh {
				p.read(kv, true)
			}
			stand[string(kv.Key)] = p
		}
	}
	for key := range c.peers {
		if stand[key] == nil {
			c.end(key)
		}
	}
	c.listed, c.peers = true, stand
}

// Apply implements mirror.Handler.
func (c *clocks) Apply(events []*clientv3.Event, _ int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ev := range events {
		if ev.Type == clientv3.EventTypeDelete {
			c.end(string(ev.Kv.Key))
			continue
		}
		if p, _ := c.peerOf(ev.Kv); p != nil {
			c.peers[string(ev.Kv.Key)] = p
			p.read(ev.Kv, false)
		}
	}
}

// end takes a process from those that live.
func (c *clocks) end(key string) {
	if p := c.peers[key]; p != nil {
		delete(c.peers, key)
		p.ended = time.Now()
		c.gone = append(c.gone, p)
	}
	c.gone = slices.DeleteFunc(c.gone, func(p *peer) bool { return time.Since(p.ended) > c.outlasts })
}

// peerOf returns the process that has put a key, or nil if the key is not one of a clock. That of a later release may
// have no time that this one can read. fresh reports whether the value was not seen yet.
func (c *clocks) peerOf(kv *mvccpb.KeyValue) (p *peer, fresh bool) {
	r, ok := record.DecodeClock(kv.Value)
	if !ok && !later(kv) || kv.Lease == 0 || string(kv.Key) != c.space.Clock(kv.Lease) {
		return nil, false
	}
	p = c.peers[string(kv.Key)]
	if p == nil {
		p = &peer{lease: kv.Lease}
	}
	fresh = p.mod != kv.ModRevision
	p.owner, p.mod = r.Owner, kv.ModRevision
	return p, fresh
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
	now := c.now()
	var out []Clock
	for _, p := range c.peers {
		if clientv3.LeaseID(p.lease) == own {
			continue
		}
		k := Clock{Owner: p.owner, Lease: clientv3.LeaseID(p.lease)}
		k.Ahead, k.Known = p.ahead(now)
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

// slowest returns a time that all clocks of the fleet have passed, also those of processes that have just ended: a lower bound of the
// slowest. It returns false until the processes were read. A step of this process's own clock moves no other one.
func (c *clocks) slowest(own clientv3.LeaseID) (least time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	least = now
	for _, p := range slices.AppendSeq(slices.Clone(c.gone), maps.Values(c.peers)) {
		counts := clientv3.LeaseID(p.lease) != own && (p.ended.IsZero() || time.Since(p.ended) <= c.outlasts)
		if at := p.least(now); counts && at.Before(least) {
			least = at
		}
	}
	return least, c.listed
}
