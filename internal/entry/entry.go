// Package entry is what comes before a call for a permit joins its queue: its limiter admits a new key, and the limits
// in etcd are those of its program and admit its weight. Where a call is refused, it returns a value, as package queue
// does.
package entry

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/queue"
)

// Entry is one call until its request is written.
type Entry struct {
	limits   *Agreement // nil if there is nothing to compare
	admitted bool       // by the Keys of the limiter, and a count of them may not show the request yet
}

// Begin returns the entry of a call. Landed is to be called.
func (a *Agreement) Begin() Entry { return Entry{a, a != nil && a.Keys != nil && a.Keys.admits()} }

// Landed ends the time in which a count may not show the request: it was written, or it failed. It may be called
// again.
func (e *Entry) Landed() {
	if e.admitted {
		e.admitted = false
		e.limits.Keys.sent.Add(-1)
	}
}

// Enter counts the keys of a limiter, and compares the request and the stored limits with the program's. begun is when
// the call began. It returns a *TooManyKeys, a *Mismatch, a *queue.TooHeavy, an error of etcd's, or one of queue.Turn.
func (e *Entry) Enter(ctx context.Context, q *queue.Queue, weight int64, begun time.Time) error {
	a := e.limits
	if a == nil {
		return nil
	}
	if a.Keys != nil && !e.admitted {
		if err := a.Session.Do(ctx, func(ctx context.Context) error { return e.admit(ctx, q, begun) }); err != nil {
			return err
		}
	}
	if a.agreed() && weight == 1 {
		return nil
	}
	leave, err := q.Turn(ctx, &a.Session.Sending, begun)
	if err != nil {
		return err
	}
	defer leave()
	return a.Session.Do(ctx, func(ctx context.Context) error { return a.admits(ctx, q, weight) })
}

// admit counts, and returns a *TooManyKeys if no key is free and the queue's own is not live.
func (e *Entry) admit(ctx context.Context, q *queue.Queue, begun time.Time) (err error) {
	k := e.limits.Keys
	if e.admitted, err = k.free(ctx); err != nil || e.admitted {
		return err
	}
	leave, err := q.Turn(ctx, &k.sess.Sending, begun)
	if err != nil {
		return err
	}
	defer leave()
	resp, err := k.sess.Read(ctx, q.Keys.Range, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count > 0 {
		return err
	}
	return &TooManyKeys{k.most}
}
