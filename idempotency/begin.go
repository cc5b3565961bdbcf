package idempotency

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
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
// order of members nor white space counts, but each member does: if a release adds a member to the type of a payload,
// what was recorded before, and is sent again, is a *MismatchError. Pass the raw bytes of the request or message, or a
// type that is the payload's alone and does not change; a new member with omitempty changes nothing while it is empty.
// A Fingerprint is compared as the hash that it is; nil equals an empty []byte. A payload that another one could be
// mistaken for is ErrInvalid: an io.Reader; JSON that CheckJSON refuses; a type whose JSON leaves out exported fields, as embedding
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
		a, out, err = beginSeen(ctx, s, via, key, payload, opts)
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
	entry, print := s.keys.Entry(key.Scope, key.Op, key.ID), s.printer.present(payloads)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case engine.Refuses(ctx, s.sess):
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
	c := &call{store: s, via: cmp.Or(via, set.via), key: key, entry: entry, print: s.printer.complete(print, payloads), set: set, outer: ctx, since: time.Now()}
	return c.begin(ctx)
}
