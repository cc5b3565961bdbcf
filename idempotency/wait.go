package idempotency

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// How a duplicate waits: for another call of this process, or for an attempt of another process.

// follow waits for the call of this process that leads the flight. It returns nil if that call has
// no outcome. A call that an attempt in progress refuses looks at each one that the leader finds. Once etcd has answered the
// leader, the call waits for as long as its ctx: on its own it would find no more.
func (c *call) follow(ctx context.Context, f *flight) (*Outcome, error) {
	agrees := f.prints().agree(c.print)
	silent, heard := within(ctx, c.set.silence) // as long as etcd has not answered
	defer heard()
	for {
		signals, known, busy, isHere := f.followed()
		var here, bound <-chan struct{}
		if known {
			heard()
			silent = ctx
		}
		if busy {
			bound = c.bound.Done()
			c.seen, c.since = true, time.Time{}
		}
		if busy && (!agrees || !c.set.waits()) {
			here = signals.here
			if !isHere {
				if err := c.behind(ctx, f); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-signals.found:
		case <-signals.done:
			out, seen := f.result()
			c.seen = c.seen || seen
			return out, nil
		case <-here:
			if !agrees {
				return nil, c.mismatch(f.prints(), false)
			}
			return nil, c.inProgress(ctx, c.ofFlight(f))
		case <-bound:
			return nil, c.inProgress(ctx, c.ofFlight(f))
		case <-silent.Done():
			return nil, c.ended(silent)
		}
	}
}

// behind returns the error of a call that another process's attempt refuses, if that is still in progress: the leader of
// the flight may not have noticed yet that it has ended, and is asked to look then.
func (c *call) behind(ctx context.Context, f *flight) error {
	c.since = time.Now()
	asking, asks, err := c.store.away.ask(ctx, c.set)
	if err != nil {
		return err
	}
	lease, _, _ := f.attempt()
	st, err := c.store.reader.read(asking, c.entry, true, lease)
	if err != nil {
		err = c.because(asking, err)
	}
	asks.end()
	if err != nil {
		return err
	}
	busy := st.live || c.undoing(st)
	if !busy || !st.prints().agree(f.prints()) {
		f.recheck()
	}
	switch {
	case !busy:
		return nil
	case !st.prints().agree(c.print):
		return c.mismatch(st.prints(), false)
	case !c.set.waits():
		return c.inProgress(ctx, st)
	}
	return nil
}

// ofFlight returns what this process knows of a request in progress, without asking etcd.
func (c *call) ofFlight(f *flight) (st state) {
	lease, number, here := f.attempt()
	if here {
		st.rec.Owner, st.rec.Number = c.store.sess.Owner(), number
	} else {
		st.rec.Lease = lease
	}
	return st
}

// errWaited is the error of await when the caller's Wait has ended.
var errWaited = errors.New("waited long enough")

// await waits until the attempt in progress in st ends, or the record changes in another way. It watches the record and
// the end of the attempt's session. It returns the state then; errWaited, with the attempt in progress, if the caller's Wait
// has ended; or ctx's error.
func (c *call) await(ctx context.Context, f *flight, st state) (state, error) {
	s, owner := c.store, st.rec.Lease
	defer s.sess.Etcd().Await()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := waiting{call: c, flight: f, ended: make(chan state, 1)}
	w.down.Store(2) // the two watches
	w.read.Store(&st)
	listening := make(chan struct{})
	if !s.sess.Background(func() {
		defer close(listening)
		s.sess.Source().Listen(ctx, c.entry.Record, w.up, w.changed)
	}) {
		return state{}, ErrClosed
	}
	defer func() { cancel(); <-listening }()
	leave, ok := s.owners.listen(owner, w.up)
	if !ok {
		return state{}, ErrClosed
	}
	defer func() { leave() }()
	// An event may be lost, so the keys are also read from time to time.
	again, rechecked := time.Tick(s.sess.TTL()), f.rechecked()
	for {
		c.since = time.Time{}
		select {
		case st := <-w.ended:
			if w.news(st.mod()) {
				return st, nil
			}
			continue
		case <-rechecked:
		case <-again:
		case <-c.bound.Done():
			return *w.read.Load(), errWaited // another attempt may have begun since the call
		case <-ctx.Done():
			return state{}, ctx.Err()
		}
		c.since = time.Now()
		st, err := s.reader.read(ctx, c.entry, true, owner)
		if err != nil || !st.live || !st.prints().agree(c.print) { // or one for another request that has the key now
			return st, err
		}
		w.read.Store(&st)
		f.markBusy(st.rec.Lease)
		if st.rec.Lease != owner { // another attempt has begun meanwhile
			leave()
			owner = st.rec.Lease
			if leave, ok = s.owners.listen(owner, w.up); !ok {
				leave = func() {}
				return state{}, ErrClosed
			}
		}
	}
}

// undoing reports whether the record in st is of a claim of this process whose function was never called, and is being removed.
func (c *call) undoing(st state) bool { return st.lost() && c.store.withdrawals.of(st) != nil }

// awaitUndone waits until such a record is removed, or is to be read again.
func (c *call) awaitUndone(ctx context.Context, st state) error {
	undone := c.store.withdrawals.of(st)
	if undone == nil {
		return nil
	}
	c.since = time.Time{} // etcd is not asked meanwhile
	select {
	case <-undone:
	case <-time.After(c.store.sess.TTL()):
	case <-c.bound.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	c.since = time.Now()
	return nil
}

// waiting is the watches of a call that waits.
type waiting struct {
	*call
	flight *flight
	down   atomic.Int32          // how many of its watches have not been established yet
	read   atomic.Pointer[state] // as it was read last
	ended  chan state
}

// news reports whether a change of the record at that revision came after the latest read. A watch may report older ones:
// the member that serves it may lag behind, and what it has sent may be late.
func (w *waiting) news(mod int64) bool { return mod > w.read.Load().mod() }

// up is called each time that a watch is established, since what came before is not reported; and when the session of the
// attempt has ended.
func (w *waiting) up() {
	if w.down.Add(-1) <= 0 {
		w.flight.recheck()
	}
}

// changed is called with changes of the record. An outcome is taken from the last of them, since it does not change;
// everything else is read, with the owner's presence key.
func (w *waiting) changed(events []*clientv3.Event) {
	since := w.read.Load().sent // what a late event brings may have been deleted since then
	st := state{majority: true, sent: since}
	for _, ev := range events {
		if string(ev.Kv.Key) != w.entry.Record || !w.news(ev.Kv.ModRevision) {
			continue
		}
		st = state{majority: true, sent: since}
		if ev.Type == clientv3.EventTypePut {
			st.take([]*mvccpb.KeyValue{ev.Kv})
		}
	}
	if st.finished() {
		select {
		case w.ended <- st:
			return
		default: // an earlier one, which may be outdated, has not been taken yet
		}
	}
	w.flight.recheck()
}
