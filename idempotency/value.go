package idempotency

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

// checkResult returns ErrInvalid if the type shows that its values cannot be replayed.
func checkResult[T any]() error {
	if _, err := canonical.CheckResult(reflect.TypeFor[T]()); err != nil {
		return invalid("the result cannot be replayed: %w", err)
	}
	return nil
}

// encodeResult returns the JSON of a value and the value that a replay returns, which is what its
// caller gets, too. It returns an error if JSON does not have all of the value. A panic of the
// type's methods is an error: the work is done.
func encodeResult[T any](v T) (text []byte, back T, err error) {
	defer func() {
		if p := recover(); p != nil {
			text, back, err = nil, v, fmt.Errorf("the value has no JSON: panic: %v", p)
		}
	}()
	if text, err = json.Marshal(&v); err != nil {
		return nil, v, fmt.Errorf("the value has no JSON: %w", err)
	}
	if exact, _ := canonical.CheckResult(reflect.TypeFor[T]()); exact && !canonical.Changed(text) {
		return text, v, nil
	}
	if err = canonical.CheckInside(reflect.ValueOf(&v)); err != nil {
		return nil, v, fmt.Errorf("the value cannot be replayed: %w", err)
	}
	if err = decodeResult(text, &back); err != nil {
		return nil, v, fmt.Errorf("the value's JSON cannot be read back: %w", err)
	}
	again, err := json.Marshal(&back)
	if err != nil {
		return nil, v, fmt.Errorf("the value that was read back from its JSON has none: %w", err)
	}
	if path, differ := canonical.Difference(text, again); differ {
		return nil, v, fmt.Errorf("the value changes when its JSON is read back, at %q%s", path, hint)
	}
	return text, back, nil
}

// hint says what most often changes a value.
const hint = ": an interface reads each number as a float64, which is exact up to 2^53, and a string has to be UTF-8"

// decodeResult decodes a recorded value.
func decodeResult(text []byte, v any) error {
	if b, ok := v.(*[]byte); ok {
		if *b, ok = unquote(text); ok {
			return nil
		}
	}
	return json.Unmarshal(text, v)
}

// decodeOwn decodes what a function has recorded. Members that the type does not have are passed over, since a later release
// of the program may have added them. But if it has none of them, another function has recorded them, and they would be
// read as a zero value. Instead names what to change then.
func decodeOwn(text []byte, v any, instead string) error {
	if err := decodeResult(text, v); err != nil {
		return err
	}
	if of := reflect.ValueOf(v).Elem(); foreign(text, of) {
		return fmt.Errorf("it was recorded by a function with another result: none of its members is one of %v; %s", of.Type(), instead)
	}
	return nil
}

// foreign reports whether JSON that was read into v is an object with members, none of which the type of v has. It is
// false for a type that reads its own JSON, and for one without fields, which claims nothing.
func foreign(text []byte, v reflect.Value) bool {
	for v.Kind() == reflect.Pointer && !v.IsNil() && !canonical.Reads(v.Type()) {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || !v.IsZero() || v.NumField() == 0 || canonical.Reads(v.Type()) {
		return false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return false
	}
	for name := range members {
		if !unknownMember(name, v.Type()) {
			return false
		}
	}
	return len(members) > 0
}

// unknownMember reports whether encoding/json passes over a member of that name when it reads a struct of the type.
func unknownMember(name string, of reflect.Type) bool {
	text, err := json.Marshal(map[string]any{name: nil})
	if err != nil {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(reflect.New(of).Interface())
	return err != nil && strings.HasPrefix(err.Error(), "json: unknown field") // no other error: a field may refuse null
}

// decodeResolved decodes what an operator has recorded. A member that the type does not have is an error: JSON for
// another type would be read as a zero value, and nothing would show it. Of a function's own result such members are
// passed over, since a later release of the program may have added them.
func decodeResolved(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("an operator has recorded this result, and Store.Resolve with OnlyRevision replaces it: %w", err)
	}
	return nil
}

// unquote decodes the JSON of a []byte, for a fifth of what encoding/json takes. It leaves what
// json.Marshal has not written to encoding/json.
func unquote(text []byte) ([]byte, bool) {
	n := len(text) - 1
	if n < 1 || text[0] != '"' || text[n] != '"' || bytes.ContainsAny(text, "\r\n") {
		return nil, false
	}
	b, err := base64.StdEncoding.AppendDecode(make([]byte, 0, n*3/4), text[1:n])
	return b, err == nil
}

// encodeError is the error of a function whose value cannot be recorded. Its work is done
// nevertheless.
type encodeError struct{ error }

func (e *encodeError) Unwrap() error { return e.error }

// unpack decodes a replayed value.
func (r *Outcome) unpack(key Key, v any) error {
	switch {
	case r.Failed:
		return &FailedError{Key: key, Outcome: r}
	case r.Omitted:
		return &OmittedError{Key: key, Outcome: r}
	}
	var err error
	if r.Resolved != "" {
		err = decodeResolved(r.Value, v)
	} else {
		err = decodeOwn(r.Value, v, "give each operation a Key.Op of its own")
	}
	if err != nil {
		return fmt.Errorf("%v: %w: %w", key, ErrUnreadable, err)
	}
	return nil
}
