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
	"github.com/etcdkit/etcdkit/internal/record"
)

// Commit records that the request is done, with its result, which duplicates get from then
// on, for as long as Retain says. What was given to Attach is part of the same Txn. Then the
// attempt is settled.
//
// It returns ErrConflict if a condition given to Attach is not met, and ErrInvalid if etcd takes no
// such operations: then nothing was written, the attempt goes on, and what was given to
// Attach is dropped. It returns ErrFenced if another attempt has taken over, ErrSettled if
// this one was settled before. After ErrNotRecorded, joined with ctx's error or one of
// etcd's, the outcome is not known to be in etcd for the whole of Retain: it is being written in
// the background, as long as the session is open, and the key is not given free. If the attempt's context had
// ended before, ErrNotRecorded is joined with its cause, such as ErrLost: then another attempt
// may have begun. ctx bounds this call only.
func (a *Attempt) Commit(ctx context.Context, result []byte) error {
	return a.finish(ctx, &settlement{state: record.AttemptDone, value: bytes.Clone(result)})
}

// Fail records that the request has failed for good: duplicates get this failure, and
// the work is not tried again. The failure is stored as it is, whatever the Codec: what is
// secret belongs into the details, which are kept as a result is. It returns what Commit
// returns: ErrConflict, ErrFenced, ErrSettled, ErrNotRecorded.
func (a *Attempt) Fail(ctx context.Context, failure string, details []byte) error {
	return a.finish(ctx, &settlement{state: record.AttemptFailed, value: bytes.Clone(details), failure: record.Text(failure)})
}

// Release gives the key free, as if the request had never come, except for its recovery
// points. The next duplicate is another attempt. Without recovery points the next request may
// have another payload, so Release is for work that was not begun; after work that has failed,
// return the error from Do's or Run's function. It returns what Commit returns but ErrConflict.
func (a *Attempt) Release(ctx context.Context) error {
	return a.finish(ctx, &settlement{state: record.AttemptReleased})
}

// Abandon leaves the attempt as if its process had died: what it has done is not known, and
// OnLost says what comes next. It returns what Commit returns but ErrConflict.
func (a *Attempt) Abandon(ctx context.Context) error {
	return a.finish(ctx, &settlement{})
}

var (
	// errUnmet is the ErrConflict of Commit and Fail.
	errUnmet = fmt.Errorf("%w: a condition given to Attach is not met", ErrConflict)
	// errRejected is the ErrInvalid of Commit and Fail: etcd does not accept the Txn.
	errRejected = invalid("etcd rejects what was given to Attach")
)

// settlement is how an attempt is to end.
type settlement struct {
	state   string // "" to abandon it
	value   []byte
	failure string
	omit    bool // there is no value to keep
	ran     bool // the function has run, so the key is kept for its payload after a release
	gone    bool // the claim that was to be abandoned was not there any more

	reported error // why the attempt's context had ended, if the caller reports that itself

	ready  bool
	alone  bool   // etcd has refused it, and would those that go with it
	since  moment // before the first try to write it
	stored []byte
	rec    record.Attempt
	text   string // of rec
	ifs    []clientv3.Cmp
	then   []clientv3.Op
}

// finish writes the outcome, once.
func (a *Attempt) finish(ctx context.Context, o *settlement) error {
	if err := a.beginEnding(o); err != nil {
		return wrap(a.key, err)
	}
	if o.state == "" || o.state == record.AttemptReleased {
		a.life.End(ErrSettled) // before another attempt may begin
	}
	held := true
	select {
	case a.writing <- struct{}{}: // a recovery point may be under way
	case <-ctx.Done():
		held = false
	}
	a.life.Halt() // not before: MaxExecution ends a recovery point as well
	err, again := error(nil), true
	if held && ctx.Err() == nil {
		// Where the session has ended, nothing is left that could try again.
		tries, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(a.store.client.Ctx(), cancel)
		err, again = a.write(tries, o)
		stop()
		cancel()
	}
	if again {
		return wrap(a.key, a.finishLater(o, errors.Join(ErrNotRecorded, a.store.explain(because(ctx, err))), held))
	}
	a.settled(o, err)
	<-a.writing
	return wrap(a.key, err)
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

// finishLater has the outcome written in the background. It returns err, joined with why the
// attempt's context has ended unless the caller reports that. held says that the caller has the
// right to write the record.
func (a *Attempt) finishLater(o *settlement, err error, held bool) error {
	if !a.epoch.Valid() { // once more: the write may have taken long
		a.life.Lose(a.lostWithSession())
	}
	a.life.End(ErrSettled)                                          // that ends a recovery point under way, too
	if gone := a.interrupted(); gone != nil && gone != o.reported { //nolint:errorlint // the same error, not the same kind
		err = errors.Join(err, gone)
	}
	s := a.store
	s.count.pending.Add(1)
	if !s.sess.Background(func() {
		if !held {
			a.writing <- struct{}{}
		}
		defer func() { s.count.pending.Add(-1); <-a.writing }()
		a.keepWriting(o)
	}) {
		s.count.pending.Add(-1)
		a.settled(o, err)
		if held {
			<-a.writing
		}
	}
	return err
}

func wrap(k Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", k, err)
}

// keepWriting writes the outcome in the background, for as long as the session is open.
func (a *Attempt) keepWriting(o *settlement) {
	s := a.store
	ctx := s.sess.Context()
	pause := commit.Backoff{Most: 5 * time.Second}
	for {
		err, again := a.write(ctx, o)
		if err != nil && !again {
			s.log.Warn("an outcome could not be recorded", zap.Stringer("request", a.key), zap.Error(err))
			if errors.Is(err, ErrConflict) || errors.Is(err, errRejected) {
				// Nobody is there any more to decide: so it is lost.
				a.drop()
				err = ErrSettled
			}
		}
		if again {
			if again = pause.Wait(ctx, err) == nil; again {
				continue
			}
		}
		a.settled(o, err)
		return
	}
}

// settled ends the attempt here, or lets it go on after a conflict.
func (a *Attempt) settled(o *settlement, err error) {
	s := a.store
	a.mu.Lock()
	if errors.Is(err, ErrConflict) || errors.Is(err, errRejected) {
		a.ending, a.ifs, a.then = false, nil, nil
		a.mu.Unlock()
		a.life.Resume()
		return
	}
	a.over = ErrSettled
	a.final = err == nil && (o.state != "" || !o.gone && errors.Is(a.life.Cause(), ErrSettled))
	if errors.Is(err, ErrFenced) {
		a.over = ErrFenced
		s.count.fenced.Add(1)
	}
	if err == nil && (o.state == record.AttemptDone || o.state == record.AttemptFailed) {
		a.outcome = &Outcome{Value: o.value, Failed: o.state == record.AttemptFailed, Failure: o.failure, Omitted: o.rec.Omitted,
			Attempt: a.rec.Number, Token: a.token, print: prints{payload: a.rec.Print, also: a.rec.Also}}
		if o.rec.Omitted {
			a.outcome.Value = nil
			s.count.omitted.Add(1)
		}
	}
	done := a.outcome
	a.mu.Unlock()
	if err == nil {
		switch o.state {
		case record.AttemptDone:
			s.count.done.Add(1)
		case record.AttemptFailed:
			s.count.failed.Add(1)
		case record.AttemptReleased:
			s.count.released.Add(1)
		default:
			s.count.abandoned.Add(1)
		}
	}
	a.stop()
	a.life.End(ErrSettled)
	if done != nil {
		s.cache.put(a.entry.Ref, done, o.since, a.set.retain)
	}
	a.given.Do(func() { s.work.give(a.work, err != nil || o.state == "") })
	a.land(done)
}
