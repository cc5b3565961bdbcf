// Package canonical makes one text of all that is the same JSON, for payloads to be compared
// by. Texts and values of which two that differ would become one text are refused.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON sorts the members of objects and leaves out what means nothing. Numbers stay as they
// were written: 1 and 1.0 differ.
//
// It refuses texts that readers disagree about (RFC 7493 says which), since two of them
// would be one to encoding/json: names that stand twice in an object, of which it keeps the
// last, and what is no Unicode, which it replaces. To compare them as bytes instead would
// tell them apart, and have the request done whose meaning is in doubt.
//
// The texts come from clients, so its work is linear in their length, but for the sorting,
// and it makes no value of what they say: it reads the text twice, once for where the members
// of each object are, and once to write them in order. It refuses nesting beyond 10,000, as
// encoding/json does. Its result is what encoding/json makes of the decoded text, in all
// releases of Go: stored fingerprints depend on it.
func JSON(b []byte) ([]byte, error) {
	if len(b) > math.MaxInt32 {
		return nil, errors.New("it is above 2 GiB")
	}
	if !json.Valid(b) {
		return nil, json.Unmarshal(b, new(json.RawMessage)) // which says why
	}
	if err := checkUnicode(b); err != nil {
		return nil, err
	}
	t := text{b: b}
	if _, err := t.find(0); err != nil {
		return nil, err
	}
	out, _, _ := t.write(make([]byte, 0, len(b)+len(b)/8), 0, 0)
	return out, nil
}

// checkUnicode returns an error if valid JSON has bytes that are no UTF-8, or an escape of
// half a character.
func checkUnicode(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("it is no UTF-8")
	}
	for i := 0; ; i += 2 { // past what is escaped
		next := bytes.IndexByte(b[i:], '\\')
		if next < 0 {
			return nil
		}
		i += next
		if r := escape(b, i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(b, i+6)) == utf8.RuneError {
				return fmt.Errorf("the escape at byte %d is half a character", i)
			}
			i += 6
		}
	}
}

// escape returns what \uXXXX at i says, or -1.
func escape(b []byte, i int) rune {
	if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[i+2 : i+6] {
		if c >= 'A' {
			c += 9 // of both cases the lower four bits
		}
		r = r<<4 | rune(c&0xf)
	}
	return r
}
