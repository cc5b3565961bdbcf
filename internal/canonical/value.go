package canonical

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Value returns the Sum of a value's JSON. It refuses values whose JSON does not contain all that
// they hold: see checkType and checkWhole.
func Value(v any) (Sum, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return Sum{}, err
	}
	if err := checkWhole(reflect.ValueOf(&v).Elem(), 0); err != nil {
		return Sum{}, err
	}
	return JSON(b)
}

var ioReader = reflect.TypeFor[io.Reader]()

// marshals reports whether a type writes its own JSON.
func marshals(t reflect.Type) bool {
	return t.Implements(marshalers[0].of) || t.Implements(marshalers[1].of)
}

// maxDepth is far beyond the depth of any value that has JSON.
const maxDepth = 10_000

// checkWhole walks a value as encoding/json does. It returns an error for a reader and for a
// struct none of whose fields is written, whose JSON is {} whatever they hold; for text that
// is not UTF-8, of which encoding/json replaces bytes; and, for what is in interfaces, where
// checkType does. Unexported fields beside written ones are left out, as everywhere.
func checkWhole(v reflect.Value, depth int) error {
	if !v.IsValid() || depth > maxDepth {
		return nil
	}
	t := v.Type()
	switch {
	case v.Kind() == reflect.Interface:
		if v.IsNil() {
			return nil
		}
		if err := checkType(v.Elem().Type()); err != nil {
			return err
		}
		return checkWhole(v.Elem(), depth+1)
	case marshals(t) || v.CanAddr() && marshals(reflect.PointerTo(t)):
		return checkWhole(behindMethod(v), depth+1)
	case t.Implements(ioReader):
		return fmt.Errorf("the content of a reader (%v) is not compared: pass its bytes, or a Fingerprint of them", t)
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return errors.New("a string in it is not valid UTF-8")
		}
	case reflect.Pointer:
		return checkWhole(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		return checkElements(v, depth)
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
			err = fmt.Errorf("the JSON of a %v is always {}: give the type a MarshalJSON, or leave it out with json:\"-\"", t)
		}
		return err
	}
	return nil
}

// behindMethod returns the part of v that its marshaling method writes: the target of a pointer, or
// the embedded field from which the method is promoted. A method that the type declares itself is
// trusted; then there is no such part.
func behindMethod(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		return v.Elem()
	case reflect.Struct:
		if _, n := marshalMethod(v.Type(), v.CanAddr(), marshalers); n >= 0 {
			return v.Field(n)
		}
	}
	return reflect.Value{}
}

// checkElements checks the elements of a slice or an array. Those of booleans and numbers are
// always written whole.
func checkElements(v reflect.Value, depth int) error {
	if k := v.Type().Elem().Kind(); k >= reflect.Bool && k <= reflect.Float64 {
		return nil
	}
	for i := range v.Len() {
		if err := checkWhole(v.Index(i), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// checkFields checks the fields of a struct that are written. It reports whether there are any, or
// whether the struct has no fields at all.
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
