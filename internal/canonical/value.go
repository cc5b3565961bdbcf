package canonical

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Value returns the JSON of a value, as JSON does of a text. It refuses values whose JSON
// does not say all that they hold: see checkType and checkWhole.
func Value(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := checkWhole(reflect.ValueOf(&v).Elem(), 0); err != nil {
		return nil, err
	}
	return JSON(b)
}

var (
	ioReader = reflect.TypeFor[io.Reader]()
)

// speaks tells whether a type says itself what its JSON is.
func speaks(t reflect.Type) bool {
	return t.Implements(marshalers[0].of) || t.Implements(marshalers[1].of)
}

// deepest is far beyond what has any JSON.
const deepest = 10_000

// checkWhole goes through a value as encoding/json does. It returns an error at readers
// and at structs without a field that is written, whose JSON is {} whatever is in them; and at text
// that is no UTF-8, of which it replaces bytes; and where checkType does, for what is in
// interfaces. Unexported fields beside others are left out, as everywhere.
func checkWhole(v reflect.Value, depth int) error {
	if !v.IsValid() || depth > deepest {
		return nil
	}
	t := v.Type()
	if v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil
		}
		if err := checkType(v.Elem().Type()); err != nil {
			return err
		}
		return checkWhole(v.Elem(), depth+1)
	}
	if speaks(t) || v.CanAddr() && speaks(reflect.PointerTo(t)) {
		if v.Kind() == reflect.Pointer {
			return checkWhole(v.Elem(), depth+1)
		}
		if v.Kind() == reflect.Struct {
			if _, n := spokesman(t, v.CanAddr(), marshalers); n >= 0 {
				return checkWhole(v.Field(n), depth+1)
			}
		}
		return nil
	}
	if t.Implements(ioReader) {
		return fmt.Errorf("what a %v reads is not compared: give the bytes, or a Fingerprint of them", t)
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return errors.New("a string in it is no UTF-8")
		}
	case reflect.Pointer:
		return checkWhole(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		if k := t.Elem().Kind(); k >= reflect.Bool && k <= reflect.Float64 {
			return nil
		}
		for i := range v.Len() {
			if err := checkWhole(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for m := v.MapRange(); m.Next(); {
			if err := checkWhole(m.Key(), depth+1); err != nil {
				return err
			}
			if err := checkWhole(m.Value(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		written, err := checkFields(v, depth)
		if err == nil && !written {
			err = fmt.Errorf("the JSON of a %v is {}, whatever it holds: give it a MarshalJSON, or leave it out by json:\"-\"", t)
		}
		return err
	}
	return nil
}

// checkFields checks the fields of a struct that are written. It tells whether there are any,
// or none at all.
func checkFields(v reflect.Value, depth int) (written bool, err error) {
	t := v.Type()
	written = t.NumField() == 0
	for i := range t.NumField() {
		f, x := t.Field(i), v.Field(i)
		_, inlined, left := fieldName(f)
		if left {
			continue
		}
		if inlined { // its fields are the outer one's
			if x.Kind() == reflect.Pointer {
				if x.IsNil() {
					written = true
					continue
				}
				x = x.Elem()
			}
			inner, err := checkFields(x, depth+1)
			if err != nil {
				return false, err
			}
			written = written || inner
			continue
		}
		written = true
		if err := checkWhole(x, depth+1); err != nil {
			return true, fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return written, nil
}
