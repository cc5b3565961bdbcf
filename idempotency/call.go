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
	seat  seat            // its place in the count of its scope
	seen  bool            // the key had, or has, a record or a claim
	since time.Time       // when etcd was asked what it has not answered; zero while nothing is asked
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
		f, lead := s.flights.join(c.entry.Ref, c.print)
		if lead {
			a, rec, err := c.lead(ctx, f)
			if err != nil {
				err = c.unavailable(err)
			}
			if a == nil {
				s.scopes.leave(c.seat)
				c.seat = seat{}
				if !c.unclaim(f, err) {
					s.flights.end(c.entry.Ref, f, rec, c.seen)
				}
			}
			if err != nil || a != nil {
				return a, nil, err
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

// unclaim keeps the flight of a call that has failed with err for a run without a claim, if its caller may do that. Duplicates
// in this process find the run as they find an attempt, and none of them gets ErrUnseen meanwhile.
func (c *call) unclaim(f *flight, err error) bool {
	if c.set.unclaimed == nil || !errors.Is(err, ErrUnseen) {
		return false
	}
	a := &Attempt{claim: claim{store: c.store, key: c.key, entry: c.entry, set: c.set, child: c.print.child, flight: f}, unclaimed: true}
	c.store.away.leave(a)
	f.markHere(0)
	*c.set.unclaimed = &unclaimedRun{a, err}
	return true
}

// unavailable joins err with a *concurrency.UnavailableError if etcd does not answer, and with
// ErrUnseen if nothing is known of the request and its policy is not Refuse.
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
	return &InProgressError{Key: c.key, Owner: st.rec.Owner, Attempt: st.rec.Number, RetryAfter: c.store.expiries.retryAfter(ctx, st.rec.Lease)}
}

// refuse counts, logs and returns the error of a refusal.
func (c *call) refuse(ctx context.Context, next decision, st state) error {
	s := c.store
	switch next {
	case refuseUnreadable:
		return fmt.Errorf("%w: %w", ErrUnreadable, record.Why(c.entry.Record, st.kv.Value))
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
func (c *call) next(st state) *record.Attempt {
	r := &record.Attempt{
		State: record.AttemptWorking, Number: 1, Owner: c.store.sess.Owner(), Nonce: c.store.sess.Nonce(),
		Scope: c.key.Scope, Op: c.key.Op, Via: c.via, Note: c.set.note, Print: c.print.payload, Also: c.print.also, Codec: c.store.reader.codecs.own, Refuse: c.set.OnLost == Refuse, StartMS: time.Now().UnixMilli(),
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

// because joins err with the error of the caller's ctx or the session's, if ctx, which is derived from both, has
// ended.
func (c *call) because(ctx context.Context, err error) error {
	ended := c.ended(ctx)
	if ended != nil && err == ctx.Err() { //nolint:errorlint // the same error, not the same kind
		return ended
	}
	return joined(ended, err)
}

// ended returns why a ctx that is derived from the caller's has ended: the error of the caller's ctx,
// or else the session's; nil if it has not.
func (c *call) ended(ctx context.Context) error {
	if err := c.outer.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
