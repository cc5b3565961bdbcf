package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// How the call that leads a flight finds out what to do, with the decisions of decide.go.

// lead asks etcd until there is an attempt, an outcome or an error.
func (c *call) lead(ctx context.Context, f *flight) (a *Attempt, out *Outcome, err error) {
	s, st := c.store, state{sent: now()}
	c.since = st.sent.Time
	ctx, asks, err := s.away.ask(ctx, c.set)
	if err != nil {
		return nil, nil, err
	}
	defer asks.end()
	answered := func() { asks.met(); f.markKnown() }
	if !c.set.likelyNew || s.away.outage.On() {
		st, err = s.reader.read(ctx, c.entry, false, 0)
		answered()
		s.away.refused(err)
	}
	pause, confirmed, at := commit.Backoff{}, false, moment{}
	for err == nil {
		c.seen, c.since = c.seen || st.kv != nil, time.Now()
		next := c.decide(st, confirmed)
		if next == admitNew {
			if next, at, err = c.admit(ctx, st); err != nil {
				break
			}
		}
		if next == awaitAttempt || next == awaitUndo || next == refuseInProgress {
			f.markBusy(st.rec.Lease)
		}
		switch next {
		case replayOutcome:
			out, st, err = c.outcome(ctx, st)
			if out != nil {
				return nil, out, nil
			}
			if err == nil {
				err = pause.Wait(ctx, nil)
			}
		case awaitAttempt:
			if st, err = c.await(ctx, f, st); errors.Is(err, errWaited) {
				return nil, nil, c.inProgress(ctx, st)
			}
		case awaitUndo:
			if err = c.awaitUndone(ctx, st); err == nil {
				st, err = s.reader.read(ctx, c.entry, true, st.owner())
			}
		case askMajority:
			confirmed = confirmed || st.majority
			st, err = s.reader.read(ctx, c.entry, true, st.owner())
			answered()
		case claimKey:
			a, err = c.claim(ctx, f, st, at)
			if a != nil || final(err, st) {
				return a, nil, err
			}
			answered()
			st, err = c.inTheWay(ctx, st, err, &pause)
		default:
			return nil, nil, c.refuse(ctx, next, st)
		}
	}
	return nil, nil, c.failed(ctx, st, err)
}

// final reports whether a claim over st that has failed with err ends the call. etcd that is out of space refuses a claim
// before it compares what it has, so a record that no majority was asked for may exist, and is to be replayed.
func final(err error, st state) bool {
	return err != nil && (st.majority || !errors.Is(err, ErrNearQuota))
}

// inTheWay reads what was in the way of a claim over st. If there is no record, it returns the error of the claim, or waits
// if that has none: what was in the way was this process's own.
func (c *call) inTheWay(ctx context.Context, st state, failed error, pause *commit.Backoff) (state, error) {
	st, err := c.store.reader.read(ctx, c.entry, true, st.owner())
	switch {
	case err != nil || st.kv != nil:
		return st, err
	case failed != nil:
		return st, failed
	}
	return st, pause.Wait(ctx, nil)
}

// failed returns the error of a call that has found st.
func (c *call) failed(ctx context.Context, st state, err error) error {
	c.seen = c.seen || st.kv != nil
	return c.because(ctx, err)
}

// outcome returns the outcome of a finished request. If parts of its result are gone, it returns
// what a majority finds at the key now: the request may have expired.
func (c *call) outcome(ctx context.Context, st state) (*Outcome, state, error) {
	s := c.store
	out, err := s.reader.load(ctx, c.entry, st)
	if err != nil {
		return nil, st, err
	}
	if out != nil {
		s.cache.put(c.entry.Ref, out, st.sent, min(c.set.Retain, s.opts.Retain))
		return out, st, nil
	}
	again, err := s.reader.read(ctx, c.entry, true, st.owner())
	if err == nil && st.majority && again.mod() == st.mod() {
		err = fmt.Errorf("%w (%s): parts of the result do not exist", ErrUnreadable, c.entry.Ref)
	}
	return nil, again, err
}

func (c *call) decide(st state, confirmed bool) decision {
	k := known{state: st, agrees: st.kv != nil && st.prints().agree(c.print), undoing: c.undoing(st), confirmed: confirmed}
	return decide(k, asked{waits: c.set.waits() && c.bound.Err() == nil, refuses: c.set.OnLost == Refuse})
}

// admit decides whether an attempt may begin, and returns the time of that. It returns an error of etcd's or ctx's.
func (c *call) admit(ctx context.Context, st state) (_ decision, at moment, err error) {
	if at = st.sent; st.majority || st.kv != nil { // otherwise that was just now
		at = now()
	}
	room, full := c.store.space.enough(at), false
	if room && st.kv == nil {
		if full, err = c.store.scopes.full(ctx, c.key.Scope, &c.seat); err != nil {
			return 0, at, err
		}
	}
	return admission(st.majority, room, full, c.store.sess.Trusted()), at, nil
}
