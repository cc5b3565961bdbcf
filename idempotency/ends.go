package idempotency

import "github.com/etcdkit/etcdkit/idempotency/internal/word"

// What follows an attempt whose function has not succeeded.

// NothingDone wraps an error of the function of Do or Run, and says that the attempt has had no
// effect: the request is released for the same payload, whatever OnError and OnLost are. The error
// has the text of err, and wraps it; NothingDone of nil is nil.
//
// It counts only as what the function returns, not within another error: what a callee says of its own
// part is no word about the parts before it. So wrap an error of a callee that may say it: passed on
// unwrapped, it is the function's own word. Do and Run return the error without it. It does not count if
// the attempt's context has ended. The log of an attempt whose outcome is unknown says of one that did not count.
func NothingDone(err error) error {
	if err == nil {
		return nil
	}
	return &word.Error{Err: err, Word: word.NothingDone}
}

// Permanent wraps an error of the function of Do or Run, and says that the request has failed for
// good: the failure is recorded, whatever OnError is, and duplicates get a *FailedError. The call itself
// returns the error, which does not match ErrFailed. Its text is stored in plain text, whatever the Codec. The error has the text of err, and wraps it; Permanent of
// nil is nil. It counts also within another error, before NothingDone. A *FailedError counts as
// one: of a request within another one, a failure means the same when it is replayed.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &word.Error{Err: err, Word: word.Permanent}
}

// afterError returns what happens to a request whose function has returned err. onError is
// the option OnError.
func afterError(err error, onError func(error) Action, refuse bool) Action {
	switch word.Of(err) {
	case word.Permanent:
		return Remember
	case word.NothingDone:
		return Forget
	}
	return after(onError(err), refuse)
}

// after returns what happens to a request whose function has failed, by what the options say of
// failures of its kind. With Refuse they cannot release it: what they know of the failure, its kind, is no
// proof that nothing was done.
func after(said Action, refuse bool) Action {
	switch {
	case said != Forget && said != DefaultAction:
		return said
	case refuse:
		return Abandon
	}
	return Forget
}
