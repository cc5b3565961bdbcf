package canonical

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Value returns the JSON of a value, as JSON does of a text. It refuses values whose JSON
// says nothing of what they hold: see checkWhole.
func Value(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := checkWhole(reflect.ValueOf(v), 0); err != nil {
		return nil, err
	}
	return JSON(b)
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	ioReader      = reflect.TypeFor[io.Reader]()
)

// speaks tells whether a type says itself what its JSON is.
func speaks(t reflect.Type) bool { return t.Implements(jsonMarshaler) || t.Implements(textMarshaler) }

// deepest is far beyond what has any JSON.
const deepest = 10_000

// checkWhole goes through a value as encoding/json does. It returns an error at readers
// and at structs without a field that is written, whose JSON is {} whatever is in them; and at text
// that is no UTF-8, of which it replaces bytes. Unexported fields beside others are left
// out, as everywhere.
func checkWhole(v reflect.Value, depth int) error {
	if !v.IsValid() || depth > deepest {
		return nil
	}
	t := v.Type()
	if v.Kind() == reflect.Interface {
		return checkWhole(v.Elem(), depth+1)
	}
	if speaks(t) || v.CanAddr() && speaks(reflect.PointerTo(t)) {
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
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		if f.Anonymous && (tag == "" || tag[0] == ',') {
			if x.Kind() == reflect.Pointer && x.Type().Elem().Kind() == reflect.Struct {
				if x.IsNil() {
					written = true
					continue
				}
				x = x.Elem()
			}
			if x.Kind() == reflect.Struct { // its fields are the outer one's
				inner, err := checkFields(x, depth+1)
				if err != nil {
					return false, err
				}
				written = written || inner
				continue
			}
		}
		if !f.IsExported() {
			continue
		}
		written = true
		if err := checkWhole(x, depth+1); err != nil {
			return true, fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return written, nil
}
