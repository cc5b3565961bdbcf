// Package word has the errors by which a function says what is to happen to its request.
package word

import (
	"errors"
	"slices"
)

// Word is what an error says.
type Word int

// The words.
const (
	None Word = iota
	NothingDone
	Permanent
)

// Error is an error with a word. Its text is that of Err.
type Error struct {
	Err  error
	Word Word
}

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Refused is what a function returns beside a result that is a final no. A result that cannot be kept was no success,
// so the text is recorded as a failure in place of it.
type Refused struct{ Text string }

// Error returns the text.
func (e Refused) Error() string { return e.Text }

// Of returns what an error says that a function has returned. NothingDone counts only as what the function
// itself returns: what a callee says of its own part is no word about the parts before it.
func Of(err error) Word {
	switch _, outer := err.(*Error); { //nolint:errorlint // only what the function itself says
	case permanent(err):
		return Permanent
	case outer:
		return NothingDone
	}
	return None
}

// permanent reports whether Permanent is said anywhere in err.
func permanent(err error) bool {
	switch e := err.(type) { //nolint:errorlint // one error after the other
	case *Error:
		return e.Word == Permanent || permanent(e.Err)
	case interface{ Unwrap() error }:
		return permanent(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), permanent)
	}
	return false
}

// Passed returns an error as Do passes it on: without its NothingDone, which was about that one request.
func Passed(err error) error {
	for {
		e, is := err.(*Error) //nolint:errorlint // only the outermost
		if !is || e.Word != NothingDone {
			return err
		}
		err = e.Err
	}
}

// Uncounted returns what the log of an unknown outcome says of an error with a NothingDone that does not count, since
// it is within another error; it is empty for any other.
func Uncounted(err error) string {
	if _, within := errors.AsType[*Error](err); !within || Of(err) != None {
		return ""
	}
	return " (a NothingDone within another error does not count: the function has to return it itself)"
}

// Plain returns an error without its word, if that is all there is around it.
func Plain(err error) error {
	for {
		e, is := err.(*Error) //nolint:errorlint // only the outermost
		if !is {
			return err
		}
		err = e.Err
	}
}
