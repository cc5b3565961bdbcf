package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// How an attempt is lost that has not been settled: with its session, with the lease of its record, when etcd refuses a write
// of it, or after MaxExecution.

// ungrounded is called when what the attempt depends on has ended.
func (a *Attempt) ungrounded() {
	if cause := a.lostWithSession(); a.life.End(cause) {
		a.seen.lost(cause)
	}
	logLostAtWork(a)
	if a.epoch.Outlived() { // the record, if it exists, still names an attempt of a session that lives
		a.giveUp(nil)
		return
	}
	a.store.away.leave(a)
	a.endFlight(nil) // duplicates in this process may take over, as those of other processes may
}

// lost returns the error of a change of the record while the attempt works: ErrLost in place of errRecordGone, and the cause
// of the context's end if the change is fenced. Duplicates in this process may take over when the session's margin has passed.
func (a *Attempt) lost(err error) error {
	if errors.Is(err, errRecordGone) {
		return a.lostWithSession()
	}
	fence, ok := errors.AsType[*fencedError](err)
	if !ok || !a.life.End(a.fenced()) {
		return err
	}
	cause := a.life.Cause()
	a.seen.lost(cause)
	if fence.found == nil {
		logGone(a, cause)
	}
	a.giveUp(nil)
	return cause
}

// overdue is called when MaxExecution has ended the attempt's context. If the function does not return
// within the session's margin, the attempt is left as lost; what the function commits after that
// counts only if no other attempt has taken over.
func (a *Attempt) overdue(cause error) {
	a.seen.lost(cause)
	if errors.Is(cause, ErrTooLong) {
		a.giveUp(func() {
			a.store.log.Warn("an attempt did not return when MaxExecution had passed: it counts as lost", fieldsOf(a)...)
			a.seen.overrun(a.Context())
		})
	}
}

// giveUp has the record say that the attempt is lost, when the session's margin has passed, unless it is settled. A Commit
// that is under way then may end without that, because a condition of Attach is not met, and no timer is left. report may
// be nil.
func (a *Attempt) giveUp(report func()) {
	s := a.store
	s.sess.Callback(func() {
		select {
		case <-time.After(s.sess.Margin()):
		case <-s.sess.Context().Done():
			return
		}
		a.drop(report)
		s.away.leave(a)
		a.endFlight(nil)
	})
}

// drop reports that the attempt is lost, and has the record say so. It repeats that until etcd has it, the attempt is
// settled, or the session has ended, which says the same. A late outcome knows the record as the drop has left it.
func (a *Attempt) drop(report func()) {
	ctx, pause := a.store.sess.Context(), commit.Backoff{Most: 5 * time.Second}
	for {
		if !a.lockUntil(ctx) {
			return
		}
		writing, over := a.settling.now()
		if report != nil && !writing && !over {
			a.own.turn.free() // for a hook that writes the record
			report()
			report = nil
			continue
		}
		var err error
		if !writing && !over {
			a.leave() // Close does not wait for it: the end of the session says the same
			err = a.own.lose(ctx)
		}
		a.own.turn.free()
		if over || !writing && (err == nil || errors.Is(err, ErrFenced)) || pause.Wait(ctx, nil) != nil {
			return
		}
	}
}

// lose has the record say that the attempt is lost, also if it was put by hand meanwhile and still says that the attempt
// works. It returns ErrFenced if the record was changed otherwise, or deleted, or its lease is gone, and an error of etcd's or ctx's if it is not
// certain what the record says. The caller holds the turn.
func (w *ownRecord) lose(ctx context.Context) error {
	for w.rec.State != record.AttemptLost {
		err := w.change(ctx, func(r *record.Attempt) error { r.State = record.AttemptLost; return nil })
		if mod := w.ghost(err); mod > 0 {
			w.mod, w.unsure = mod, "" // what was sent before is void
			continue
		}
		return err
	}
	return nil
}

// loseSurely repeats lose until etcd has it, or ctx ends.
func (w *ownRecord) loseSurely(ctx context.Context) {
	pause := commit.Backoff{Most: 5 * time.Second}
	for {
		err := w.lose(ctx)
		if err == nil || errors.Is(err, ErrFenced) || pause.Wait(ctx, nil) != nil {
			return
		}
	}
}

// unclaim has a record say that the attempt is lost which was put by hand, at that revision, and so does not belong to the
// attempt any more, which is over.
func (a *Attempt) unclaim(revision int64) {
	s := a.store
	s.sess.Callback(func() {
		a.own.turn.take(context.Background())
		defer a.own.turn.free()
		a.own.mod, a.own.unsure = revision, ""
		there := *a.own.rec
		there.State = record.AttemptWorking // also after MaxExecution
		a.own.rec = &there
		a.own.loseSurely(s.sess.Context())
	})
}
