// Package canonical writes equal JSON as one text, so that payloads can be compared. It refuses
// texts and values of which two different ones would get the same text.
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

// JSON sorts the members of objects and leaves out insignificant space. Numbers stay as they were
// written: 1 and 1.0 differ.
//
// It refuses texts that parsers read differently (RFC 7493 lists them), because encoding/json
// would read two of them as one: duplicate member names, of which it keeps the last, and invalid
// Unicode, which it replaces. Compared as bytes, they would differ, and a request would run whose
// meaning is in doubt.
//
// The texts come from clients, so the work is linear in their length, except for the sorting, and
// no value is built from them: the text is read twice, once to find the members of each object,
// and once to write them in order. JSON refuses nesting beyond 10,000, as encoding/json does. Its
// result is what encoding/json writes for the decoded text, in all releases of Go: stored
// fingerprints depend on it.
func JSON(b []byte) ([]byte, error) {
	if len(b) > math.MaxInt32 {
		return nil, errors.New("it is larger than 2 GiB")
	}
	if !json.Valid(b) {
		return nil, json.Unmarshal(b, new(json.RawMessage)) // returns the reason
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

// checkUnicode returns an error if valid JSON has bytes that are not UTF-8, or an escape of half a
// surrogate pair.
func checkUnicode(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("it is not valid UTF-8")
	}
	for i := 0; ; i += 2 { // past what is escaped
		next := bytes.IndexByte(b[i:], '\\')
		if next < 0 {
			return nil
		}
		i += next
		if r := escape(b, i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(b, i+6)) == utf8.RuneError {
				return fmt.Errorf("the escape at byte %d is half of a surrogate pair", i)
			}
			i += 6
		}
	}
}

// escape returns the code unit that \uXXXX at i denotes, or -1.
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
