package idempotency

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
)

// owners are the sessions for whose attempts calls of a Store wait, by lease: one watch for each, of the end of its
// presence key. It is safe for concurrent use.
type owners struct {
	sess *engine.Session
	mu   sync.Mutex
	of   map[int64]*owner
}

// owner is one of them.
type owner struct {
	listeners map[*listener]struct{}
	up        bool // the watch has been established
	stop      context.CancelFunc
}

// listener is a call that waits. poke is called when the watch is established, each time, and when the session has ended.
type listener struct{ poke func() }

// listen calls poke until leave is called. ok is false if the session of the Store is closed.
func (o *owners) listen(lease int64, poke func()) (leave func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, x := &listener{poke}, o.of[lease]
	if x == nil {
		ctx, cancel := context.WithCancel(o.sess.Context())
		x = &owner{listeners: map[*listener]struct{}{}, stop: cancel}
		pokes := func() { o.pokes(x) }
		if !o.sess.Background(func() {
			o.sess.Source().Listen(ctx, o.sess.Space().Session(lease).Alive(), pokes, func([]*clientv3.Event) { pokes() }, clientv3.WithFilterPut())
		}) {
			cancel()
			return nil, false
		}
		o.of[lease] = x
	}
	x.listeners[l] = struct{}{}
	if x.up {
		poke()
	}
	return func() { o.leave(lease, x, l) }, true
}

// pokes calls all listeners of an owner.
func (o *owners) pokes(x *owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x.up = true
	for l := range x.listeners {
		l.poke()
	}
}

func (o *owners) leave(lease int64, x *owner, l *listener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(x.listeners, l)
	if len(x.listeners) == 0 && o.of[lease] == x {
		delete(o.of, lease)
		x.stop()
	}
}
