package engine

import "github.com/etcdkit/etcdkit/internal/commit"

// Withdraw deletes the keys of a request that its caller has given up, in the background,
// and then frees its slot. refused is called if etcd refuses that; it is repeated until the
// lease ends. Once the lease is lost there is nothing to do: the session revokes it until
// that is certain, and with it go the keys.
func (e *Epoch) Withdraw(t *Ticket, refused func(error)) {
	if e.ctx.Err() != nil {
		return
	}
	e.Deletes(t)
	e.sess.Background(func() {
		if _, err := e.sess.Erase(e.ctx, t.Stored, refused); err == nil {
			e.Free(t)
		}
	})
}

// Discard settles, in the background, a request of which it is not known whether it was
// written, and removes it if so. Its slot stays taken until that is certain. If the lease is
// lost before, its end settles it.
func (e *Epoch) Discard(t *Ticket, pending *commit.PendingError) {
	e.Deletes(t)
	if !e.sess.Background(func() {
		if err := pending.Discard(e.ctx, t.Also...); err == nil {
			e.Free(t)
		}
	}) {
		pending.Abandon()
	}
}
