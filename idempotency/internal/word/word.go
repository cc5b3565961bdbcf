// Package word has the errors by which a function says what is to happen to its request.
package word

import "errors"

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

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Of returns what an error says that a function has returned. NothingDone counts only as what the function
// itself returns: what a callee says of its own part is no word about the parts before it.
func Of(err error) Word {
	if e, outer := err.(*Error); outer && e.Word == NothingDone { //nolint:errorlint // only what the function itself says
		if !permanent(e.Err) {
			return NothingDone
		}
	}
	if permanent(err) {
		return Permanent
	}
	return None
}

// permanent reports whether Permanent is said anywhere in err.
func permanent(err error) bool {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Word == Permanent {
			return true
		}
	}
	return false
}

// Plain returns the error without its word, if that is all there is around it.
func Plain(err error) error {
	for {
		e, is := err.(*Error) //nolint:errorlint // only the outermost
		if !is {
			return err
		}
		err = e.Err
	}
}
