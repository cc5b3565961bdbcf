package concurrency

import (
	"context"
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
		var tick <-chan time.Time
		for {
			v, changed := m.View()
			if tick == nil && v.Revision < c.token {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			if ctx.Err() != nil {
				return
			}
			info, waits := g.waitInfo(v, c, begun)
			if !waits {
				return
			}
			if tick != nil && len(v.Holders) > 0 {
				info.FreesBy = g.freesBy(ctx, v.Holders[0].Slot.Lease)
			}
			t.waiting(info)
			tick = time.After(g.sess.opts.ReportEvery)
			select {
			case <-tick:
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

func (g *gate) waitInfo(v mirror.View, c *claim, begun time.Time) (info WaitInfo, waits bool) {
	ahead := len(v.Holders)
	for _, r := range v.Waiters {
		if r.Create == c.token {
			blocking := v.Holders
			if len(blocking) > maxBlocking {
				blocking = blocking[:maxBlocking]
			}
			return WaitInfo{Name: g.name, Token: c.token, Waited: time.Since(begun), Limit: int(v.Limit), Ahead: ahead, Blocking: describeAll(blocking)}, true
		}
		ahead++
	}
	return WaitInfo{}, false
}

// freesBy asks etcd how long a lease has left. etcd rounds the answer down to
// seconds and looks for expired leases every half second.
func (g *gate) freesBy(ctx context.Context, lease int64) time.Time {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := g.sess.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(max(resp.TTL, 0))*time.Second + 1500*time.Millisecond)
}
