// Package jsonlist has JSON say [] and {} for a list or a map that has nothing, never null: a program that reads it
// ranges over both without a question.
package jsonlist

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// Of returns what encoding/json writes as v, but for lists and maps that are nil: they are empty in it. v is not changed, so
// others may read it meanwhile. A type that writes itself is left as it is, and so is what an embedded pointer to an
// unexported type leads to.
func Of(v any) any {
	if v == nil {
		return nil
	}
	out := reflect.New(reflect.TypeOf(v)).Elem()
	out.Set(reflect.ValueOf(v))
	fill(out)
	return out.Interface()
}

// fill replaces what is nil in a value, and copies what leads to it.
func fill(v reflect.Value) {
	t := v.Type()
	switch kind := t.Kind(); {
	case plain(t):
	case kind == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			absent := strings.Contains(f.Tag.Get("json"), "omitzero") && v.Field(i).IsZero()
			if (f.IsExported() || f.Anonymous) && !absent {
				fill(v.Field(i))
			}
		}
	case kind == reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case !v.CanSet():
	case kind == reflect.Slice:
		all := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(all, v)
		for i := range all.Len() {
			fill(all.Index(i))
		}
		v.Set(all)
	case kind == reflect.Map:
		all := reflect.MakeMapWithSize(t, v.Len())
		for key, value := range v.Seq2() {
			all.SetMapIndex(key, filled(value))
		}
		v.Set(all)
	case v.IsNil():
	case kind == reflect.Pointer:
		to := reflect.New(t.Elem())
		to.Elem().Set(v.Elem())
		fill(to.Elem())
		v.Set(to)
	case kind == reflect.Interface:
		v.Set(filled(v.Elem()))
	}
}

// filled returns a copy of a value that cannot be changed.
func filled(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	fill(out)
	return out
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// plain reports whether values of a type have no lists and no maps, or write themselves.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.Struct:
	default:
		return true
	}
	to := reflect.PointerTo(t)
	return t.Kind() != reflect.Interface && (to.Implements(marshaler) || to.Implements(textMarshaler))
}
