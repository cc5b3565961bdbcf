package idempotency

import (
	"cmp"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/idempotency/internal/limits"
	"github.com/etcdkit/etcdkit/idempotency/internal/notice"
)

// What an operator should know of the end of an attempt, at once: the client may not come again.

func init() { notice.Of = func(a any) error { return noticeOf(a.(*Attempt)) } }

func init() {
	limits.Of = func(attempt any) limits.Limits {
		a := attempt.(*Attempt)
		return limits.Limits{MaxExecution: a.set.MaxExecution, Closing: a.store.sess.Accepting()}
	}
}

// noticeOf returns what an operator should know of an attempt that was settled, or nil.
func noticeOf(a *Attempt) error {
	if unknown := unknownOf(a); unknown != nil {
		return unknown
	}
	_, unkept := a.settling.notice()
	return unkept
}

// unknownOf returns an *UnknownError for an attempt whose request is refused until Resolve, since it was abandoned, and nil
// for any other.
func unknownOf(a *Attempt) error {
	if unknown, _ := a.settling.notice(); !unknown {
		return nil
	}
	return &UnknownError{Key: a.key, Ref: Ref(a.entry.Ref), Owner: a.begun.Owner, Attempt: a.begun.Number, Note: *a.own.note.Load()}
}

// logLostAtWork logs that the session has ended under a function whose request another one does not take over, or the
// record under any function: then another one does, whatever the policy.
func logLostAtWork(a *Attempt) {
	cause, reason := a.epoch.Why()
	switch {
	case a.settling.open() != nil:
		return
	case a.epoch.Outlived():
		logGone(a, cmp.Or(reason, cause))
		return
	case !a.begun.Refuse:
		return
	}
	a.store.log.Warn("the session of an attempt has ended before its function: the request is refused until Resolve", fieldsOf(a, zap.NamedError("because", cmp.Or(reason, cause)))...)
}

// logGone logs that the record of an attempt at work does not exist any more.
func logGone(a *Attempt, because error) {
	a.store.log.Warn("the record of an attempt is gone before its function has returned: the next call executes the request", fieldsOf(a, zap.NamedError("because", because))...)
}

// keepNone notes, and logs, that the outcome is recorded without its result.
func keepNone(a *Attempt, why error) {
	a.store.log.Warn("a result is not kept: duplicates learn only that the request was done", fieldsOf(a, zap.Error(why))...)
	a.settling.omitted(fmt.Errorf("the result of %v (%s) is not kept, so duplicates do not get it: %w", a.key, a.entry.Ref, why))
}

// unstorable returns why a result that its Codec has made, or failed to make with err, is not stored, or nil.
func (o *Options) unstorable(stored []byte, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("codec %q: %w", o.Codec.Name(), err)
	case len(stored) > o.MaxResult:
		return fmt.Errorf("it has %d bytes as it is stored, more than Options.MaxResult, %d", len(stored), o.MaxResult)
	}
	return nil
}

// errOneMessage is why a result that is stored in the record or in parts of 1 MiB is not kept.
var errOneMessage = errors.New("it is too large for one message of etcd (--max-request-bytes) or of its client (MaxCallSendMsgSize)")
