package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Commit records that the request is done, with its result: duplicates get it for as long as Retain.
// The conditions and operations given to Attach are part of the same Txn. The attempt is settled then.
//
// It returns ErrConflict if a condition given to Attach is not met, and ErrInvalid if etcd refuses
// the operations: then nothing was written, what was given to Attach is dropped, and the attempt
// continues. Keys that etcd denies the client's user are such a case once it has denied them for five
// seconds, and allows the store's own; until then, an operator may be replacing a role, and the outcome is
// written again. It returns ErrFenced if another attempt has taken over, and ErrSettled if this one was
// settled before. ErrNotRecorded, joined with ctx's error or one of etcd's, means that it is not
// certain that etcd has the outcome for the whole of Retain: it is being written in the background
// as long as the session is open, and the key stays claimed. If the attempt's context had ended
// before, ErrNotRecorded is joined with its cause, such as ErrLost: then another attempt may have
// begun. ctx bounds this call only.
func (a *Attempt) Commit(ctx context.Context, result []byte) error {
	return a.finish(ctx, end{state: record.AttemptDone, value: bytes.Clone(result)})
}

// Fail records that the request has failed for good: duplicates get this failure, and the work is
// not retried. The failure is stored in plain text, whatever the Codec; put secrets into the details,
// which are stored as a result is. It returns the errors of Commit: ErrConflict, ErrInvalid,
// ErrFenced, ErrSettled, ErrNotRecorded.
func (a *Attempt) Fail(ctx context.Context, failure string, details []byte) error {
	return a.finish(ctx, end{state: record.AttemptFailed, value: bytes.Clone(details), failure: record.Text(failure)})
}

// Release releases the key, as if the request had never been called; only its recovery points are
// kept. The next call begins another attempt. Without recovery points the next call may have another
// payload, so Release is for work that was not begun. After work that has failed, return the error
// from the function of Do or Run instead. It returns the errors of Commit, except for ErrConflict.
func (a *Attempt) Release(ctx context.Context) error {
	return a.finish(ctx, end{state: record.AttemptReleased})
}

// Abandon leaves the attempt as lost, as if its process had died: it is unknown what it did, and
// OnLost decides what happens next. It returns the errors of Commit, except for ErrConflict.
func (a *Attempt) Abandon(ctx context.Context) error {
	return a.finish(ctx, end{})
}

var (
	// errUnmet is the ErrConflict of Commit and Fail.
	errUnmet = fmt.Errorf("%w: a condition given to Attach is not met", ErrConflict)
	// errRejected is the ErrInvalid of Commit and Fail: etcd does not accept the Txn.
	errRejected = invalid("etcd rejects what was given to Attach")
)

// end is the end of an attempt as a caller asks for it.
type end struct {
	state    string // of the record; "" to abandon the attempt
	value    []byte
	failure  string // or why it is abandoned
	refused  string // what is recorded in place of a value that cannot be kept and is a final no
	omit     bool   // there is no value to keep
	ran      bool   // the function has run, so the key is kept for its payload after a release
	reported error  // why the attempt's context had ended, if the caller reports that itself
}

// finish writes the outcome, once.
func (a *Attempt) finish(ctx context.Context, e end) error {
	if !claimed(a) {
		return none(endings[e.state].verb)
	}
	if a.seen != nil {
		return finishSeen(ctx, a, e)
	}
	return a.settle(ctx, e)
}

func (a *Attempt) settle(ctx context.Context, e end) error {
	_ = a.Err() // a pause may have outlasted the session, and no timer has fired yet
	ifs, then, err := a.settling.begin()
	if err != nil {
		return a.about(endings[e.state].verb, err)
	}
	o := &settlement{end: e, a: a, ifs: ifs, then: then}
	if e.state == "" || e.state == record.AttemptReleased {
		a.life.End(ErrSettled) // before another attempt may begin
	}
	held := a.lockUntil(ctx) // a recovery point may be under way
	if held {
		defer a.own.turn.free()
	}
	a.life.Halt() // not before: MaxExecution ends a recovery point as well
	again := true
	if held && ctx.Err() == nil {
		// Where the session has ended, nothing is left that could try again.
		tries := either.Of(ctx, a.store.sess.Etcd().Ctx(), nil)
		defer tries.Release()
		if err, again = o.try(tries); commit.Denied(err) {
			err, again = o.tryAllowed(tries, err, again)
		}
	}
	if again {
		why := because(ctx, err)
		if o.denied.IsZero() { // otherwise the role lacks none of the store's own keys
			why = a.store.sess.Explain(why)
		}
		return a.about(endings[e.state].verb, a.finishLater(o, why))
	}
	a.settled(o, err)
	return a.about(endings[e.state].verb, err)
}

// finishLater has the outcome written in the background, as soon as the record may be written. It
// returns ErrNotRecorded, joined with why it could not be written yet, and with why the attempt's context has
// ended unless the caller reports that.
func (a *Attempt) finishLater(o *settlement, why error) error {
	if !a.epoch.Valid() { // once more: the write may have taken long
		a.life.End(a.lostWithSession())
	}
	a.life.End(ErrSettled) // that ends a recovery point under way, too
	gone := a.interrupted()
	if gone != nil && errors.Is(gone, why) {
		why = nil // it is part of that
	}
	if gone == o.reported { //nolint:errorlint // the same error, not the same kind
		gone = nil
	}
	err := join.Errors(ErrNotRecorded, why, gone)
	s := a.store
	if o.state == "" {
		a.leave() // the end of the session says the same
		if a.begun.Refuse {
			a.settling.doubted()
		}
	}
	s.count.add(&s.count.Pending, 1)
	if !s.sess.Callback(func() {
		a.own.turn.take(context.Background())
		defer func() { s.count.add(&s.count.Pending, -1); a.own.turn.free() }()
		a.keepWriting(o)
	}) {
		s.count.add(&s.count.Pending, -1)
		a.settled(o, err)
	}
	return err
}

// endings are the ways to settle an attempt, by the state of the record: the name of the call, for
// errors, and its count.
var endings = map[string]struct {
	verb  string
	count func(*Stats) *int64
}{
	"":                     {"abandon", func(s *Stats) *int64 { return &s.Abandoned }},
	record.AttemptDone:     {"commit", func(s *Stats) *int64 { return &s.Done }},
	record.AttemptFailed:   {"fail", func(s *Stats) *int64 { return &s.Failed }},
	record.AttemptReleased: {"release", func(s *Stats) *int64 { return &s.Released }},
}

// keepWriting writes the outcome in the background, for as long as the session is open.
func (a *Attempt) keepWriting(o *settlement) {
	s := a.store
	ctx := s.sess.Context()
	pause := commit.Backoff{Most: 5 * time.Second}
	for {
		err, again := o.try(ctx)
		if err != nil && !again {
			s.log.Warn("an outcome could not be recorded", fieldsOf(a, zap.Error(err))...)
			if continues(err) {
				// No caller is left that could decide, so the attempt is lost.
				a.own.loseSurely(ctx)
				err = ErrSettled
			}
		}
		if again {
			if again = pause.Wait(ctx, err) == nil; again {
				continue
			}
			if o.state != "" { // an abandoned attempt has a line of its own
				s.log.Warn("an outcome could not be recorded", fieldsOf(a, zap.Error(s.sess.Explain(err)))...)
			}
		}
		a.settled(o, err)
		return
	}
}

// settled ends the attempt in this process, or lets it continue after a conflict.
func (a *Attempt) settled(o *settlement, err error) {
	if err != nil {
		o.giveBack(a.store.retention.of(a.set.Retain))
	}
	if continues(err) {
		a.settling.reopen()
		a.life.Resume()
		return
	}
	s, over, cause, done := a.store, ErrSettled, ErrSettled, o.outcome(err)
	if errors.Is(err, ErrFenced) {
		over, cause = ErrFenced, a.fenced()
		if mod := a.ghost(err); mod > 0 {
			a.unclaim(mod)
		}
	}
	unknown := o.state == "" && a.begun.Refuse && !o.fenced
	final := err == nil && (o.state != "" || !o.gone && a.uninterrupted())
	a.settling.end(over, final, unknown, o.rec.Omitted)
	if err == nil && (o.state == record.AttemptDone || o.state == record.AttemptFailed) {
		a.settling.record()
	}
	as := o.end
	if err == nil && o.rec.State == record.AttemptFailed { // also a final no that could not be kept as an outcome
		as.state = record.AttemptFailed
	}
	switch {
	case over == ErrFenced || o.fenced:
		s.count.add(&s.count.Fenced, 1)
	case err == nil:
		s.count.add(endings[as.state].count(&s.count.Stats), 1)
	}
	a.epoch.remove(a)
	a.life.End(cause)
	if done != nil {
		if done.Omitted {
			s.count.add(&s.count.Omitted, 1)
		}
		s.cache.put(a.entry.Ref, done, o.since, a.set.Retain)
	}
	if unknown {
		s.log.Warn("an attempt has ended, and what it did is not known: the request is refused until Resolve", fieldsOf(a, zap.String("because", o.failure))...)
	}
	ended, why := endOfAttempt(as, err)
	a.seen.end(ended, why, err)
	s.work.give(a.work, err != nil || o.state == "")
	s.away.settle(a)
	a.endFlight(done)
}
