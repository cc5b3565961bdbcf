package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/forms"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Begin begins an attempt at the request with that key, or returns the outcome of an earlier one. It
// returns one of three:
//
//   - an Attempt: the caller has to do the work and then call Commit, Fail, Release or Abandon;
//   - the recorded Outcome, a result or a failure;
//   - an error, and nothing has begun: an *InProgressError (an attempt is in progress, and Wait has
//     ended), a *MismatchError (the key was used with another payload), an *UnknownError (an attempt
//     was lost, and the policy is Refuse), a *ScopeFullError (the scope has as many records as
//     MaxPerScope allows), ErrNearQuota, ErrUnreadable, ErrInvalid, ErrClosed, ctx's error or one of
//     etcd's. A *concurrency.UnavailableError is joined if etcd does not answer. ErrUnseen is joined
//     if etcd does not answer or is near its quota, this call has seen nothing of the request, and its
//     policy is not Refuse.
//
// Two calls with one key are the same request only if their payloads are equal. []byte and string
// are compared byte by byte; json.RawMessage and all other types by their JSON, in which neither the
// order of members nor white space counts; a Fingerprint is compared as the hash that it is; nil
// equals an empty []byte. A payload that another one could be mistaken for is ErrInvalid: an
// io.Reader; JSON that CheckJSON refuses; a type whose JSON leaves out exported fields, as embedding
// can do without json:"-". The result of a type's own MarshalJSON is not checked. What an encoder
// writes in another way each time, as protobuf does, is another payload each time: of a message, pass
// its idemgrpc.Fingerprint.
//
// ctx bounds the call. If it ends, Begin returns ctx.Err(), not its cause. The attempt's context has
// the values of ctx, and does not end with it.
func (s *Store) Begin(ctx context.Context, key Key, payload any, opts ...Option) (*Attempt, *Outcome, error) {
	return beginBy(ctx, s, "", key, payload, opts)
}

// beginBy is Begin for an entry of this package, or, if via is empty, for the one that the option Via names.
func beginBy(ctx context.Context, s *Store, via string, key Key, payload any, opts []Option) (*Attempt, *Outcome, error) {
	var a *Attempt
	var out *Outcome
	var err error
	if s.sess.Hooks().On() {
		a, out, err = s.beginSeen(ctx, via, key, payload, opts)
	} else {
		a, out, err = s.begin(ctx, via, key, payload, opts)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("idempotency: begin in store %q: %w", s.name, s.sess.Explain(err))
	}
	return a, out, nil
}

func (s *Store) begin(ctx context.Context, via string, key Key, payload any, opts []Option) (*Attempt, *Outcome, error) {
	if err := key.check(s.opts.SingleTenant); err != nil {
		return nil, nil, err
	}
	set, err := s.set, error(nil)
	if len(opts) > 0 {
		if set, err = s.opts.settings(opts); err != nil {
			return nil, nil, err
		}
	}
	payloads, err := contents(payload, set.also)
	if err != nil {
		return nil, nil, err
	}
	entry, print := s.keys.Entry(key.Scope, key.Op, key.ID), s.present(payloads)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case s.sess.Accepting().Err() != nil:
		return nil, nil, ErrClosed
	}
	if Within(ctx, s, key) {
		return nil, nil, invalid("%v: Begin within its own attempt would wait for itself", key)
	}
	// Most replays end here, so nothing is prepared that only the others need.
	if rec := s.cache.get(entry.Ref); rec != nil && rec.print.agree(print) {
		s.count.add(&s.count.Cached, 1)
		return nil, rec, nil
	}
	c := &call{store: s, via: cmp.Or(via, set.via), key: key, entry: entry, print: s.complete(print, payloads), set: set, outer: ctx, begun: time.Now()}
	c.since = c.begun
	return c.begin(ctx)
}

// begin is Begin for a call whose outcome is not in the cache.
func (c *call) begin(ctx context.Context) (*Attempt, *Outcome, error) {
	s := c.store
	bound, stop := c.set.waitBound()
	defer stop()
	c.bound = bound
	ctx, cancel := s.sess.Open(ctx)
	defer cancel()
	for {
		if rec := s.cache.get(c.entry.Ref); rec != nil {
			s.count.add(&s.count.Cached, 1)
			return c.replay(rec)
		}
		f, lead := s.join(c.entry.Ref, c.print)
		if lead {
			a, rec, err := c.lead(ctx, f)
			if a == nil {
				s.endFlight(c.entry.Ref, f, rec)
			}
			if err != nil || a != nil {
				return a, nil, c.unavailable(err)
			}
			s.count.add(&s.count.Read, 1)
			return c.replay(rec)
		}
		rec, err := c.follow(ctx, f)
		if err != nil {
			return nil, nil, c.unavailable(err)
		}
		if rec != nil {
			s.count.add(&s.count.Joined, 1)
			return c.replay(rec)
		}
	}
}

// call is one call of Begin.
type call struct {
	store *Store
	via   string // the entry
	key   Key
	entry keyspace.Entry
	print prints
	set   *settings
	bound context.Context // ends after the option Wait
	outer context.Context // the caller's
	seen  bool            // the key had, or has, a record or a claim
	begun time.Time       // when the call has begun
	since time.Time       // when etcd was asked what it has not answered; zero while nothing is asked
}

// unavailable joins err with a *concurrency.UnavailableError if etcd does not answer, and with
// ErrUnseen if nothing is known of the request and its policy is not Refuse. The store learns from it whether there is an outage.
func (c *call) unavailable(err error) error {
	known := errors.Is(err, concurrency.ErrUnavailable)
	away := (known || commit.Away(err)) && !errors.Is(err, ErrClosed)
	if away && !known {
		since := c.since
		if since.IsZero() {
			since = time.Now()
		}
		if o, ok := c.store.sess.Unanswered(since); ok {
			err = fmt.Errorf("%w: %w", err, &concurrency.UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err})
		}
	}
	if c.seen || c.store.away.knows(c.entry.Ref) {
		return err
	}
	if away {
		c.store.away.unanswered(err, c.begun, c.set)
	}
	if (away || errors.Is(err, ErrNearQuota)) && c.set.OnLost != Refuse {
		return join.Errors(ErrUnseen, err)
	}
	return err
}

func (c *call) replay(rec *Outcome) (*Attempt, *Outcome, error) {
	if !rec.print.agree(c.print) {
		return nil, nil, c.mismatch(rec.print, true)
	}
	return nil, rec, nil
}

// mismatch returns the error of a call whose fingerprints do not agree with those of its request.
func (c *call) mismatch(of prints, finished bool) error {
	c.store.count.add(&c.store.count.Mismatched, 1)
	return &MismatchError{Key: c.key, Finished: finished, Also: of.samePayload(c.print)}
}

func (c *call) inProgress(ctx context.Context, st state) error {
	c.store.count.add(&c.store.count.InProgress, 1)
	return &InProgressError{Key: c.key, Owner: st.rec.Owner, Attempt: st.rec.Number, RetryAfter: c.store.retryAfter(ctx, st.rec.Lease)}
}

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
			st, err := c.store.read(asking, c.entry, true)
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

// lead asks etcd until there is an attempt, an outcome or an error.
func (c *call) lead(ctx context.Context, f *flight) (a *Attempt, out *Outcome, err error) {
	s, st := c.store, state{sent: now()}
	c.since = time.Now()
	ctx, answered, err := s.away.ask(ctx, c.set)
	if err != nil {
		return nil, nil, err
	}
	defer answered()
	if !c.set.likelyNew || s.away.outage.On() {
		st, err = s.read(ctx, c.entry, false)
		answered()
		s.away.refused(err)
	}
	pause, undo, confirmed := commit.Backoff{}, commit.Backoff{Most: 100 * time.Millisecond}, false
	for err == nil {
		c.seen, c.since = c.seen || st.claim || st.kv != nil, time.Now()
		next := c.decide(st, confirmed)
		if next == admitNew {
			if next, err = c.admit(ctx, st); err != nil {
				break
			}
		}
		if st.claim && (next == awaitAttempt || next == refuseInProgress) {
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
			before := st
			if st, err = c.await(ctx, f); errors.Is(err, errWaited) {
				return nil, nil, c.inProgress(ctx, before)
			}
		case awaitUndo:
			if err = undo.Wait(ctx, nil); err == nil {
				st, err = s.read(ctx, c.entry, true)
			}
		case askMajority:
			confirmed = confirmed || st.majority
			st, err = s.read(ctx, c.entry, true)
		case claimKey:
			if a, err = c.claim(ctx, f, st); a != nil || err != nil {
				return a, nil, err
			}
			answered()
			if st, err = s.read(ctx, c.entry, true); err == nil && st.kv == nil {
				err = pause.Wait(ctx, nil) // the key is free: what was in the way was this process's own
			}
		default:
			return nil, nil, c.refuse(ctx, next, st)
		}
	}
	return nil, nil, c.because(ctx, err)
}

// outcome returns the outcome of a finished request. If parts of its result are gone, it returns
// what a majority finds at the key now: the request may have expired.
func (c *call) outcome(ctx context.Context, st state) (*Outcome, state, error) {
	s := c.store
	out, err := s.load(ctx, c.entry, st)
	if err != nil {
		return nil, st, err
	}
	if out != nil {
		s.cache.put(c.entry.Ref, out, st.sent, min(c.set.Retain, s.opts.Retain))
		return out, st, nil
	}
	again, err := s.read(ctx, c.entry, true)
	if err == nil && st.majority && again.mod() == st.mod() {
		err = fmt.Errorf("%w (%s): parts of the result do not exist", ErrUnreadable, c.entry.Ref)
	}
	return nil, again, err
}

// refuse counts, logs and returns the error of a refusal.
func (c *call) refuse(ctx context.Context, next decision, st state) error {
	s := c.store
	switch next {
	case refuseUnreadable:
		return fmt.Errorf("%w (%s)", ErrUnreadable, c.entry.Ref)
	case refuseMismatch:
		return c.mismatch(st.prints(), st.finished())
	case refuseInProgress:
		return c.inProgress(ctx, st)
	case refuseUnknown:
		s.count.add(&s.count.Unknown, 1)
		if s.warned.first(fmt.Sprint(c.entry.Ref, st.rec.Number)) {
			s.log.Warn("an attempt was lost: the request is refused until Resolve", c.fields(st, st.rec.Number)...)
		}
		return &UnknownError{Key: c.key, Ref: Ref(c.entry.Ref), Owner: st.rec.Owner, Attempt: st.rec.Number, Note: st.rec.Note}
	case refuseScopeFull:
		s.count.add(&s.count.ScopeFull, 1)
		most := s.opts.MaxPerScope
		// Records that were made at equal intervals expire at equal intervals.
		after := min(max(c.set.Retain/time.Duration(most), time.Second), time.Hour)
		return &ScopeFullError{Key: c.key, Max: most, RetryAfter: after}
	}
	return ErrNearQuota
}

// fields name a request in logs. The key's ID is a secret, and not among them.
func (c *call) fields(lost state, number int) []zap.Field {
	return []zap.Field{
		zap.String("scope", c.key.Scope), zap.String("op", c.key.Op), zap.String("ref", c.entry.Ref),
		zap.Int("attempt", number), zap.String("lost", lost.rec.Owner), noted(cmp.Or(lost.rec.Note, c.set.note)),
	}
}

// next returns the record of the attempt that comes after st.
func (c *call) next(st state) record.Attempt {
	r := record.Attempt{
		State: record.AttemptWorking, Number: 1, Owner: c.store.sess.Owner(), Nonce: c.store.sess.Nonce(),
		Scope: c.key.Scope, Op: c.key.Op, Via: c.via, Note: c.set.note, Print: c.print.payload, Also: c.print.also, Refuse: c.set.OnLost == Refuse, StartMS: time.Now().UnixMilli(),
	}
	if codec := c.store.opts.Codec; codec != nil {
		r.Codec = codec.Name()
	}
	if r.Via != forms.Do && len(c.set.returns) <= keyspace.MaxName {
		r.Returns = c.set.returns
	}
	if st.kv != nil {
		before := st.rec.Replaced()
		r.Number, r.Refuse, r.Body, r.Was = before.Number+1, r.Refuse || before.Refuse, before.Body, before.Was
		r.Note = cmp.Or(r.Note, before.Note)
		if r.Also == nil {
			r.Also = before.Also
		}
	}
	return r
}
