package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
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
	return a.finish(ctx, &settlement{state: record.AttemptDone, value: bytes.Clone(result)})
}

// Fail records that the request has failed for good: duplicates get this failure, and the work is
// not retried. The failure is stored in plain text, whatever the Codec; put secrets into the details,
// which are stored as a result is. It returns the errors of Commit: ErrConflict, ErrInvalid,
// ErrFenced, ErrSettled, ErrNotRecorded.
func (a *Attempt) Fail(ctx context.Context, failure string, details []byte) error {
	return a.finish(ctx, &settlement{state: record.AttemptFailed, value: bytes.Clone(details), failure: record.Text(failure)})
}

// Release releases the key, as if the request had never been called; only its recovery points are
// kept. The next call begins another attempt. Without recovery points the next call may have another
// payload, so Release is for work that was not begun. After work that has failed, return the error
// from the function of Do or Run instead. It returns the errors of Commit, except for ErrConflict.
func (a *Attempt) Release(ctx context.Context) error {
	return a.finish(ctx, &settlement{state: record.AttemptReleased})
}

// Abandon leaves the attempt as lost, as if its process had died: it is unknown what it did, and
// OnLost decides what happens next. It returns the errors of Commit, except for ErrConflict.
func (a *Attempt) Abandon(ctx context.Context) error {
	return a.finish(ctx, &settlement{})
}

var (
	// errUnmet is the ErrConflict of Commit and Fail.
	errUnmet = fmt.Errorf("%w: a condition given to Attach is not met", ErrConflict)
	// errRejected is the ErrInvalid of Commit and Fail: etcd does not accept the Txn.
	errRejected = invalid("etcd rejects what was given to Attach")
)

// settlement is the end of an attempt as a caller asks for it.
type settlement struct {
	state   string // "" to abandon it
	value   []byte
	failure string // or why it is abandoned
	omit    bool   // there is no value to keep
	ran     bool   // the function has run, so the key is kept for its payload after a release
	gone    bool   // the claim to be abandoned did not exist any more

	reported error // why the attempt's context had ended, if the caller reports that itself

	alone  bool   // etcd has refused it, and would refuse what is sent together with it
	since  moment // before the first try to write it
	doubt  bool   // a try has ended with an error: a copy of it may be under way
	denied moment // since when etcd denies what is attached, and would allow the rest; or zero
	stored []byte
	rec    record.Attempt
	text   string // of rec; "" until it is made
	ifs    []clientv3.Cmp
	then   []clientv3.Op
}

// finish writes the outcome, once.
func (a *Attempt) finish(ctx context.Context, o *settlement) error {
	if a.seen != nil {
		return a.finishSeen(ctx, o)
	}
	return a.settle(ctx, o)
}

func (a *Attempt) settle(ctx context.Context, o *settlement) error {
	if err := a.beginEnding(o); err != nil {
		return a.about(endings[o.state].verb, err)
	}
	if o.state == "" || o.state == record.AttemptReleased {
		a.life.End(ErrSettled) // before another attempt may begin
	}
	held := true
	select {
	case a.writing <- struct{}{}: // a recovery point may be under way
		defer func() { <-a.writing }()
	case <-ctx.Done():
		held = false
	}
	a.life.Halt() // not before: MaxExecution ends a recovery point as well
	err, again := error(nil), true
	if held && ctx.Err() == nil {
		// Where the session has ended, nothing is left that could try again.
		tries, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.store.client.Ctx(), cancel)()
		trusted := func() bool { return again && a.epoch.Valid() }
		err = commit.Allowed(tries, trusted, func() error {
			err, again = o.try(tries, a)
			return err
		})
	}
	if again {
		why := because(ctx, err)
		if o.denied.IsZero() { // otherwise the role lacks none of the store's own keys
			why = a.store.sess.Explain(why)
		}
		return a.about(endings[o.state].verb, a.finishLater(o, why))
	}
	a.settled(o, err)
	return a.about(endings[o.state].verb, err)
}

// beginEnding has o be the end of the attempt, or returns why it cannot be.
func (a *Attempt) beginEnding(o *settlement) error {
	_ = a.Err() // a pause may have outlasted the session, and no timer has fired yet
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over != nil:
		return a.over
	case a.ending:
		return ErrSettled
	}
	a.ending = true
	o.ifs, o.then = a.ifs, a.then
	return nil
}

// finishLater has the outcome written in the background, as soon as the record may be written. It
// returns ErrNotRecorded, joined with why it could not be written yet, and with why the attempt's context has
// ended unless the caller reports that.
func (a *Attempt) finishLater(o *settlement, why error) error {
	if !a.epoch.Valid() { // once more: the write may have taken long
		a.life.Lose(a.lostWithSession())
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
	s.count.add(&s.count.Pending, 1)
	if !s.sess.Background(func() {
		a.writing <- struct{}{}
		defer func() { s.count.add(&s.count.Pending, -1); <-a.writing }()
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

// about wraps an error with what was attempted.
func (a *Attempt) about(attempted string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("idempotency: %s %v in store %q: %w", attempted, a.key, a.store.name, err)
}

// keepWriting writes the outcome in the background, for as long as the session is open.
func (a *Attempt) keepWriting(o *settlement) {
	s := a.store
	ctx := s.sess.Context()
	pause := commit.Backoff{Most: 5 * time.Second}
	for {
		err, again := o.try(ctx, a)
		if err != nil && !again {
			s.log.Warn("an outcome could not be recorded", fieldsOf(a, zap.Error(err))...)
			if errors.Is(err, ErrConflict) || errors.Is(err, errRejected) {
				// No caller is left that could decide, so the attempt is lost.
				a.drop()
				err = ErrSettled
			}
		}
		if again {
			if again = pause.Wait(ctx, err) == nil; again {
				continue
			}
			if o.state != "" { // an abandoned attempt has a line of its own
				s.log.Warn("an outcome could not be recorded", fieldsOf(a, zap.Error(a.store.sess.Explain(err)))...)
			}
		}
		a.settled(o, err)
		return
	}
}

// settled ends the attempt in this process, or lets it continue after a conflict.
func (a *Attempt) settled(o *settlement, err error) {
	s := a.store
	a.mu.Lock()
	if errors.Is(err, ErrConflict) || errors.Is(err, errRejected) {
		a.ending, a.ifs, a.then = false, nil, nil
		a.mu.Unlock()
		a.life.Resume()
		return
	}
	ended, why := endOfAttempt(o, err)
	a.over = ErrSettled
	a.unknown = o.state == "" && a.begun.Refuse
	if !o.rec.Omitted {
		a.unkept = nil // it was of a Commit that has met a condition
	}
	a.final = err == nil && (o.state != "" || !o.gone && errors.Is(a.life.Cause(), ErrSettled))
	if errors.Is(err, ErrFenced) {
		a.over = ErrFenced
		s.count.add(&s.count.Fenced, 1)
	}
	var done *Outcome
	if err == nil && (o.state == record.AttemptDone || o.state == record.AttemptFailed) {
		done = &Outcome{Value: o.value, Failed: o.state == record.AttemptFailed, Failure: o.failure, Omitted: o.rec.Omitted,
			Attempt: a.rec.Number, Token: a.token, print: prints{payload: a.rec.Print, also: a.rec.Also}}
		if o.rec.Omitted {
			done.Value = nil
			s.count.add(&s.count.Omitted, 1)
		}
	}
	a.mu.Unlock()
	if err == nil {
		s.count.add(endings[o.state].count(&s.count.Stats), 1)
	}
	a.stop()
	a.life.End(ErrSettled)
	if done != nil {
		s.cache.put(a.entry.Ref, done, o.since, a.set.Retain)
	}
	if o.state == "" && a.begun.Refuse {
		s.log.Warn("an attempt has ended, and what it did is not known: the request is refused until Resolve", fieldsOf(a, zap.String("because", o.failure))...)
	}
	a.executed(ended, why, err)
	s.work.give(a.work, err != nil || o.state == "")
	s.away.settle(a)
	a.endFlight(done)
}
