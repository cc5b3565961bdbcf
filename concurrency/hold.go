package concurrency

import (
	"context"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/hold"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// The packages beside this one build on a session's lease and fence, which users
// have no business with.
func init() {
	hold.Provide(func(s any) hold.Session { return holding{s.(*Session)} })
}

type holding struct{ s *Session }

func (h holding) Client() *clientv3.Client      { return h.s.client.Client }
func (h holding) Space() keyspace.Space         { return h.s.space }
func (h holding) Source() *mirror.Source        { return h.s.source }
func (h holding) Log() *zap.Logger              { return h.s.log }
func (h holding) Holder() string                { return h.s.opts.Holder }
func (h holding) TTL() time.Duration            { return h.s.opts.TTL }
func (h holding) Margin() time.Duration         { return h.s.opts.Margin }
func (h holding) ReleaseTimeout() time.Duration { return h.s.opts.ReleaseTimeout }
func (h holding) Nonce() string                 { return strconv.FormatUint(h.s.nonces.Add(1), 36) }
func (h holding) Context() context.Context      { return h.s.ctx }
func (h holding) Background(fn func()) bool     { return h.s.background(fn) }
func (h holding) Open(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.s.untilClosed(ctx)
}

func (h holding) Live(ctx context.Context) (hold.Epoch, error) {
	e, err := h.s.live(ctx)
	if err != nil {
		return nil, err
	}
	return lived{trust{e}}, nil
}

func (h holding) Unanswered(since time.Time) error {
	if u := h.s.unavailable(); u != nil {
		return u
	}
	if time.Since(since) < silence {
		return nil
	}
	u, _ := h.s.contact.trouble()
	u.Since = since
	return u
}

type lived struct{ trust }

func (l lived) Lease() clientv3.LeaseID    { return clientv3.LeaseID(l.e.lease.ID()) }
func (l lived) Fence() *commit.Fence       { return l.e.fence }
func (l lived) Context() context.Context   { return l.e.ctx }
func (l lived) Why() (cause, reason error) { return l.e.roll.why() }

func (l lived) Enter() (leave func(), ok bool) {
	if !l.e.valid() || !l.e.roll.enter() {
		return nil, false
	}
	return sync.OnceFunc(l.e.leave), true
}
