package concurrency

import (
	"context"
	"maps"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// maxBlocking bounds the holders in one WaitInfo.
const maxBlocking = 10

// reports tells Trace.Waiting of a waiting request: once when the mirror shows
// where it stands, and then now and again. stop ends that.
func (g *gate) reports(ctx context.Context, m *mirror.Mirror, c *claim, begun time.Time) (stop func()) {
	t := g.sess.opts.Trace
	if t == nil || t.Waiting == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	report := func() {
		defer close(done)
		for again := false; ; {
			b, changed := m.Brief(c.key, c.token, maxBlocking)
			if b.Revision < c.token { // the mirror has not seen the request yet
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			if ctx.Err() != nil || !b.Waits {
				return
			}
			info := WaitInfo{Name: g.name, Token: c.token, Waited: time.Since(begun), Limit: int(b.Limit), Ahead: b.Ahead}
			for _, r := range b.Holders {
				blocker := Blocker{Request: describe(r)}
				if again { // most waits are over before
					blocker.FreesBy = g.freesBy(ctx, r.Slot.Lease)
				}
				info.Blocking = append(info.Blocking, blocker)
			}
			t.waiting(info)
			again = true
			select {
			case <-time.After(g.sess.opts.ReportEvery):
			case <-ctx.Done():
				return
			}
		}
	}
	if !g.sess.background(report) {
		close(done)
	}
	return func() { cancel(); <-done }
}

// frees is what etcd said about a lease, and when.
type frees struct{ by, asked time.Time }

// freesBy asks etcd how long a lease has left, once for all waiters of the gate.
func (g *gate) freesBy(ctx context.Context, lease int64) time.Time {
	fresh := g.sess.opts.ReportEvery / 2
	g.mu.Lock()
	known := g.frees[lease]
	g.mu.Unlock()
	if time.Since(known.asked) < fresh {
		return known.by
	}
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	asked := time.Now()
	resp, err := g.sess.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return time.Time{}
	}
	by := time.Now().Add(time.Duration(max(resp.TTL, 0))*time.Second + 1500*time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.frees, func(_ int64, f frees) bool { return asked.Sub(f.asked) > fresh })
	if g.frees == nil {
		g.frees = map[int64]frees{}
	}
	g.frees[lease] = frees{by: by, asked: asked}
	return by
}
