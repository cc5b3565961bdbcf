// Package canonical makes one text of all that is the same JSON, for payloads to be compared
// by. Texts and values of which two that differ would become one text are refused.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
func JSON(b []byte) ([]byte, error) {
	if err := json.Unmarshal(b, new(json.RawMessage)); err != nil {
		return nil, err // and nesting that is too deep
	}
	if err := checkUnicode(b); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := decodeOnce(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// decodeOnce decodes the next value, in which no object has two members of one name.
func decodeOnce(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := t.(string)
			if _, twice := object[name]; twice {
				return nil, fmt.Errorf("the name before byte %d stands twice in one object", d.InputOffset())
			}
			if object[name], err = decodeOnce(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for d.More() {
			v, err := decodeOnce(d)
			if err != nil {
				return nil, err
			}
			array = append(array, v)
		}
		_, err = d.Token()
		return array, err
	}
	return t, nil
}

// checkUnicode returns an error if valid JSON has bytes that are no UTF-8, or an escape of
// half a character.
func checkUnicode(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("it is no UTF-8")
	}
	escape := func(i int) rune { // what \uXXXX at i says, or -1
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return -1
		}
		n, _ := strconv.ParseUint(string(b[i+2:i+6]), 16, 16)
		return rune(n)
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if r := escape(i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(i+6)) == utf8.RuneError {
				return fmt.Errorf("the escape at byte %d is half a character", i)
			}
			i += 6
		}
		i++ // past what is escaped
	}
	return nil
}
