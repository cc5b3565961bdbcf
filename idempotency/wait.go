package idempotency

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// How a duplicate waits: for another call of this process, or for an attempt of another process.

// follow waits for the call of this process that leads the flight. It returns nil if that call has
// no outcome.
func (c *call) follow(ctx context.Context, f *flight) (*Outcome, error) {
	select {
	case <-f.busy:
		c.seen, c.since = true, time.Time{}
	case <-f.done:
		return f.outcome, nil
	case <-ctx.Done():
		return nil, c.ended(ctx)
	}
	if !f.print.agree(c.print) {
		return nil, c.mismatch(f.print, false)
	}
	var here <-chan struct{}
	if !c.set.waits() {
		here = f.here
		if !f.isHere() { // the leader may not have noticed yet that the other attempt has ended
			c.since = time.Now()
			asking, answered, err := c.store.away.ask(ctx, c.set)
			if err != nil {
				return nil, err
			}
			st, err := c.store.reader.read(asking, c.entry, true)
			answered()
			if err != nil {
				return nil, c.because(asking, err)
			}
			if st.claim {
				return nil, c.inProgress(ctx, st)
			}
			f.recheck()
		}
	}
	select {
	case <-f.done:
		return f.outcome, nil
	case <-here:
		return nil, c.inProgress(ctx, c.ofFlight(f))
	case <-c.bound.Done():
		return nil, c.inProgress(ctx, c.ofFlight(f))
	case <-ctx.Done():
		return nil, c.ended(ctx)
	}
}

// ofFlight returns what this process knows of a request in progress, without asking etcd.
func (c *call) ofFlight(f *flight) (st state) {
	if f.isHere() {
		st.rec.Owner, st.rec.Number = c.store.sess.Owner(), f.number
	} else {
		st.rec.Lease = f.lease
	}
	return st
}

// errWaited is the error of await when the caller's Wait has ended.
var errWaited = errors.New("waited long enough")

// await waits until the attempt in progress ends, or the record changes in another way. It watches
// one key. It returns the state then, errWaited if the caller's Wait has ended, or ctx's error.
func (c *call) await(ctx context.Context, f *flight) (state, error) {
	s, e := c.store, c.entry
	defer s.sess.Etcd().Await()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan state, 1)
	heard := func(events []*clientv3.Event) {
		st := state{majority: true, sent: now()}
		for _, ev := range events {
			if string(ev.Kv.Key) == e.Record && ev.Type == clientv3.EventTypePut {
				st.take([]*mvccpb.KeyValue{ev.Kv}, e)
			}
		}
		if st.finished() {
			select {
			case ended <- st:
			default:
			}
			return
		}
		f.recheck()
	}
	listening := make(chan struct{})
	if !s.sess.Background(func() {
		defer close(listening)
		s.sess.Source().Listen(ctx, e.Record, f.recheck, heard)
	}) {
		return state{}, ErrClosed
	}
	defer func() { cancel(); <-listening }()
	// An event may be lost, so the key is also read from time to time.
	again := time.Tick(s.sess.TTL())
	for {
		c.since = time.Time{}
		select {
		case st := <-ended:
			return st, nil
		case <-f.rechecks:
		case <-again:
		case <-c.bound.Done():
			return state{}, errWaited
		case <-ctx.Done():
			return state{}, ctx.Err()
		}
		c.since = time.Now()
		st, err := s.reader.read(ctx, e, true)
		if err != nil || !st.claim || st.finished() {
			return st, err
		}
		// The claim exists, perhaps without a record, which was deleted by hand: an event will
		// report its end.
	}
}
