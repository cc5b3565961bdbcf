// Package canonical compares JSON by a hash that equal JSON has in common. It refuses texts and
// values of which two different ones would get the same hash.
package canonical

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Sum is the hash of a JSON text, a SHA-256. Two texts have one Sum if and only if they are the same
// JSON.
type Sum [32]byte

// JSON returns the Sum of a text. Neither the order of an object's members nor insignificant space
// counts, nor how a character of a string is written. Numbers count as they were written: 1 and 1.0
// differ.
//
// It refuses texts that parsers read differently (RFC 7493 lists them), because encoding/json
// would read two of them as one: duplicate member names, of which it keeps the last, and invalid
// Unicode, which it replaces. Compared as bytes, they would differ, and a request would run whose
// meaning is in doubt. JSON refuses nesting beyond 10,000, as encoding/json does.
//
// The texts come from clients, so the work is linear in their length, except for the sorting of an
// object's members, and each text is read once: see writer.
func JSON(b []byte) (Sum, error) {
	if len(b) > math.MaxInt32 {
		return Sum{}, errors.New("it is larger than 2 GiB")
	}
	r := newReader(b)
	defer r.free()
	end := 0
	err := errSyntax
	if start := r.space(0); start < len(b) {
		end, err = r.value(start, 0)
	}
	switch {
	case err == nil && r.space(end) == len(b):
		if !utf8.Valid(b) {
			return Sum{}, errors.New("it is not valid UTF-8")
		}
		return r.sum(0), nil
	case err == nil, errors.Is(err, errSyntax):
		return Sum{}, reason(b)
	}
	return Sum{}, err
}

// errSyntax is the error of all texts that are not JSON, until reason replaces it.
var errSyntax = errors.New("it is not JSON")

// reason returns why a text is not JSON, in the words of encoding/json.
func reason(b []byte) error {
	if err := json.Unmarshal(b, new(json.RawMessage)); err != nil {
		return err
	}
	return errSyntax
}

// duplicateError is returned for an object that has two members of one name.
func duplicateError(name []byte) error {
	return fmt.Errorf("the member name %.40q is a duplicate in its object", name)
}
