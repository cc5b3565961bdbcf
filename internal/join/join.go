// Package join joins errors as errors.Join does, in a text of one line: a line break in an error is two
// records in most logs.
package join

import "strings"

// Errors returns an error whose text has those of errs, apart from "; ", and which errors.Is and
// errors.As search as they do that of errors.Join. Errors that are nil are left out; it returns nil if
// all are, and a single error as it is.
func Errors(errs ...error) error {
	var all joined
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &all
}

type joined []error

func (e *joined) Error() string {
	texts := make([]string, len(*e))
	for i, err := range *e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e *joined) Unwrap() []error { return *e }

// Kind returns an error whose text is that of err, and which errors.Is finds to be kind as well.
func Kind(kind, err error) error { return kinded{err, kind} }

type kinded struct {
	error
	kind error
}

func (k kinded) Unwrap() error        { return k.error }
func (k kinded) Is(target error) bool { return target == k.kind }

// Also returns an error whose text is that of err, and which errors.Is and errors.As find to be also as well.
func Also(err, also error) error { return with{err, also} }

type with struct {
	error
	also error
}

func (w with) Unwrap() []error { return []error{w.error, w.also} }
