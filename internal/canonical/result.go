package canonical

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// CheckResult returns an error if the type shows that values of it cannot be read back from their
// JSON: an interface with methods, of which JSON does not say the type; a type that writes its own
// JSON and does not read it; fields that JSON does not have, as checkType says, or because they are
// not exported. A field with json:"-" is left out on purpose.
//
// Values are written by their address, so that methods of the pointer are called.
//
// Exact reports that the type alone shows that every value is read back as it was, except for
// strings that are not UTF-8, which Changed finds. Of a type that is not exact, such as one with an
// interface or with methods of its own, each value has to be read back and compared.
func CheckResult(t reflect.Type) (exact bool, err error) {
	if done, ok := results.Load(t); ok {
		r := done.(result)
		return r.exact, r.err
	}
	r := reading{within: map[seen]bool{}, reads: true}
	if err = checkType(reflect.PointerTo(t)); err == nil {
		err = r.check(t, true, t.String())
	}
	results.Store(t, result{!r.inexact, err})
	return !r.inexact, err
}

type result struct {
	exact bool
	err   error
}

var results sync.Map // of result, by type

// reading is one walk over a type. It stays exact until something is found that JSON may change.
type reading struct {
	within  map[seen]bool // the types that were seen, and whether the walk is within them
	reads   bool          // values are read into the type, not only written
	inexact bool
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	textMarshaler   = marshalers[1].of
	zeroer          = reflect.TypeFor[interface{ IsZero() bool }]()
	number          = reflect.TypeFor[json.Number]()
)

// Reads reports whether a type reads its own JSON.
func Reads(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(unmarshaler) || p.Implements(textUnmarshaler)
}

func (c *reading) check(t reflect.Type, addr bool, path string) error {
	of := seen{t, addr}
	if within, was := c.within[of]; was {
		c.inexact = c.inexact || within // encoding/json writes values of any depth, and reads none beyond 10,000
		return nil
	}
	c.within[of] = true
	defer func() { c.within[of] = false }()
	if k := t.Kind(); k != reflect.Pointer && k != reflect.Interface {
		writes := marshals(t) || addr && marshals(reflect.PointerTo(t))
		c.inexact = c.inexact || writes || Reads(t) || t == number
		switch {
		case writes && !Reads(t) && c.reads:
			return fmt.Errorf("%s: %v writes its own JSON and has no UnmarshalJSON or UnmarshalText to read it", path, t)
		case writes:
			return c.besidePromoted(t, addr, path)
		}
	}
	switch t.Kind() {
	case reflect.Interface:
		c.inexact = true
		if t.NumMethod() > 0 && c.reads {
			return fmt.Errorf("%s: %v is an interface, and JSON does not say the type of the value in it: use a concrete type", path, t)
		}
		return nil
	case reflect.Pointer:
		c.inexact = c.inexact || nullable(t.Elem())
		return c.check(t.Elem(), true, path)
	case reflect.Slice:
		return c.check(t.Elem(), true, path+"[]")
	case reflect.Array:
		return c.check(t.Elem(), addr, path+"[]")
	case reflect.Map:
		if err := c.checkKey(t.Key(), path); err != nil {
			return err
		}
		return c.check(t.Elem(), false, path+"[]")
	case reflect.Struct:
		return c.checkFields(t, addr, path)
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s: a %v has no JSON", path, t)
	}
	return nil
}

// nullable reports whether a value that is not a nil pointer can be null in JSON, which a pointer
// to it reads as nil.
func nullable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	return false
}

func (c *reading) checkKey(t reflect.Type, path string) error {
	writes, reads := t.Implements(textMarshaler), reflect.PointerTo(t).Implements(textUnmarshaler)
	c.inexact = c.inexact || writes || reads
	switch k := t.Kind(); {
	case k == reflect.String:
		return nil
	case writes && reads, writes && !c.reads, !writes && k >= reflect.Int && k <= reflect.Uintptr:
		return nil
	}
	return fmt.Errorf("%s: %v as the key of a map cannot be written as JSON and read back", path, t)
}

// checkFields checks the fields of a struct that has no methods of its own for JSON.
func (c *reading) checkFields(t reflect.Type, addr bool, path string) error {
	for i := range t.NumField() {
		f := t.Field(i)
		at := path + "." + f.Name
		_, inlined, left := fieldName(f)
		var err error
		switch {
		case left:
			err = c.leftOut(f, at)
		case f.Anonymous && f.Type.Kind() == reflect.Pointer && !f.IsExported() && c.reads: // also with a name by its tag
			err = fmt.Errorf("%s: JSON cannot be read into an embedded pointer to a type that is not exported", at)
		case inlined && f.Type.Kind() == reflect.Pointer:
			c.inexact = true // not nil, and without a field that is written
			err = c.checkFields(f.Type.Elem(), true, at)
		case inlined:
			err = c.checkFields(f.Type, addr, at)
		default:
			c.readTag(f)
			err = c.check(f.Type, addr, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// besidePromoted checks what is beside an embedded field whose methods write and read the struct.
// A method that the type declares itself is trusted.
func (c *reading) besidePromoted(t reflect.Type, addr bool, path string) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	_, n := marshalMethod(t, addr, marshalers)
	for i := range t.NumField() {
		if f := t.Field(i); n >= 0 && i != n && !f.IsExported() {
			if err := c.leftOut(f, path+"."+f.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftOut returns an error for a field without JSON that is not left out by its tag.
func (c *reading) leftOut(f reflect.StructField, path string) error {
	switch {
	case f.Name == "_" || f.Type.Size() == 0:
		return nil
	case f.Tag.Get("json") == "-":
		c.inexact = true
		return nil
	}
	return fmt.Errorf("%s is not exported, so JSON does not have it: export it, leave it out with json:\"-\", or give the type MarshalJSON and UnmarshalJSON", path)
}

// readTag notes the options of a tag by which an empty value can become another one.
func (c *reading) readTag(f reflect.StructField) {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "string":
			c.inexact = true
		case "omitempty":
			c.inexact = c.inexact || nullable(f.Type) && f.Type.Kind() != reflect.Pointer
		case "omitzero":
			c.inexact = c.inexact || f.Type.Implements(zeroer) || reflect.PointerTo(f.Type).Implements(zeroer)
		}
	}
}

// Changed reports whether encoding/json has replaced bytes of a string in the text that it has
// written, or may have: it writes them as an escape. Such a text has to be read back and compared.
func Changed(text []byte) bool { return bytes.Contains(text, replaced) }

var replaced = []byte(`\ufffd`)

// Difference returns where two JSON texts first differ, as a path such as .lines[2].id, and whether
// they do. Neither the order of members counts nor how a number is written, as 10.50 and 10.5, nor escapes, but for
// that of bytes that are not UTF-8.
func Difference(a, b []byte) (path string, differ bool) {
	if bytes.Equal(a, b) {
		return "", false
	}
	va, errA := generic(a)
	vb, errB := generic(b)
	if errA != nil || errB != nil {
		return "", true
	}
	if path, differ = difference(va, vb, ""); differ {
		return path, true
	}
	_, errA = JSON(a) // refuses a name that is there twice, of which generic sees one
	_, errB = JSON(b)
	return "", errA != nil || errB != nil || bytes.Count(a, replaced) > bytes.Count(b, replaced)
}

// generic decodes a text, with numbers as they are written.
func generic(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func difference(a, b any, path string) (string, bool) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return path, true
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			v, ok := y[name]
			if !ok {
				return path + "." + name, true
			}
			if at, differ := difference(x[name], v, path+"."+name); differ {
				return at, true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(y)) {
			if _, ok := x[name]; !ok {
				return path + "." + name, true
			}
		}
		return path, false
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return path, true
		}
		for i := range x {
			if p, differ := difference(x[i], y[i], fmt.Sprintf("%s[%d]", path, i)); differ {
				return p, true
			}
		}
		return path, false
	case json.Number:
		y, ok := b.(json.Number)
		return path, !ok || decimal(x.String()) != decimal(y.String())
	}
	return path, a != b
}

// decimal returns a number in one form: its digits from the first to the last that is not 0, e, and their exponent. One
// whose exponent is beyond an int stays as it is.
func decimal(n string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n), "e")
	digits, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	exp, err := strconv.Atoi(cmp.Or(exponent, "0"))
	if err != nil {
		return n
	}
	digits = strings.TrimLeft(whole+fraction, "0")
	exp += len(digits) - len(fraction)
	digits = strings.TrimRight(digits, "0")
	if exp -= len(digits); digits == "" {
		exp = 0
	}
	if negative {
		digits = "-" + digits
	}
	return digits + "e" + strconv.Itoa(exp)
}
