package canonical

import (
	"reflect"
	"sync"
)

// CheckInside does for what is in the interfaces of a result what CheckResult does for its type: it
// returns an error if JSON does not have all fields of it. It is read back as maps and lists, so nothing
// has to read its type.
func CheckInside(v reflect.Value) error { return checkInside(v, 0) }

func checkInside(v reflect.Value, depth int) error {
	if !v.IsValid() || depth > maxDepth {
		return nil
	}
	t := v.Type()
	switch k := v.Kind(); {
	case k == reflect.Interface:
		if v.IsNil() {
			return nil
		}
		if err := checkWritten(v.Elem().Type()); err != nil {
			return err
		}
		return checkInside(v.Elem(), depth+1)
	case k == reflect.Pointer:
		return checkInside(v.Elem(), depth+1)
	case marshals(t) || v.CanAddr() && marshals(reflect.PointerTo(t)):
		return nil
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		if k := t.Elem().Kind(); k >= reflect.Bool && k <= reflect.Float64 || k == reflect.String {
			return nil
		}
		for i := range v.Len() {
			if err := checkInside(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for m := v.MapRange(); m.Next(); {
			if err := checkInside(m.Value(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if _, inlined, left := fieldName(t.Field(i)); left && !inlined {
				continue
			}
			if err := checkInside(v.Field(i), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkWritten returns an error if the JSON of a type does not have all fields.
func checkWritten(t reflect.Type) error {
	if done, ok := writtens.Load(t); ok {
		err, _ := done.(error)
		return err
	}
	err := checkType(t)
	if err == nil {
		err = (&reading{within: map[seen]bool{}}).check(t, false, t.String())
	}
	writtens.Store(t, err)
	return err
}

var writtens sync.Map // the results of checkWritten, by type
