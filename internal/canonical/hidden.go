package canonical

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// checkType returns an error if encoding/json leaves out exported fields of a type, or of a type
// that its values are made of: two payloads that differ only in such a field would be taken for
// the same. Embedding does that in two ways. A method that is promoted from an embedded field is
// called for the whole struct. And of fields with one name at most one is written.
//
// A MarshalJSON or MarshalText that the type declares itself is trusted, and json:"-" leaves a
// field out on purpose. The type does not show what is in interfaces: see checkWhole.
func checkType(t reflect.Type) error {
	if done, ok := checked.Load(t); ok {
		err, _ := done.(error)
		return err
	}
	err := (&types{seen: map[seen]bool{}}).check(t, false)
	checked.Store(t, err)
	return err
}

var checked sync.Map // the results of checkType, by type

// types is one walk over a type.
type types struct{ seen map[seen]bool }

// seen is a type, and whether its values are addressable: then methods of the pointer are called.
type seen struct {
	t    reflect.Type
	addr bool
}

func (c *types) check(t reflect.Type, addr bool) error {
	if c.seen[seen{t, addr}] {
		return nil
	}
	c.seen[seen{t, addr}] = true
	switch t.Kind() {
	case reflect.Pointer:
		return c.check(t.Elem(), true)
	case reflect.Struct:
		return c.checkStruct(t, addr, marshalers)
	}
	if marshals(t) || addr && marshals(reflect.PointerTo(t)) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice:
		return c.check(t.Elem(), true)
	case reflect.Array:
		return c.check(t.Elem(), addr)
	case reflect.Map:
		if key := t.Key(); key.Kind() == reflect.Struct { // written by MarshalText
			if err := c.checkStruct(key, false, marshalers[1:]); err != nil {
				return err
			}
		}
		return c.check(t.Elem(), false)
	}
	return nil
}

func (c *types) checkStruct(t reflect.Type, addr bool, by []marshaler) error {
	if m, n := marshalMethod(t, addr, by); m != nil {
		if n < 0 {
			return nil
		}
		f := t.Field(n)
		if left := leaves(t, addr, n); len(left) > 0 {
			return hides(t, left[0].path, fmt.Sprintf("the %s of the embedded %s writes the whole", m.name, f.Name))
		}
		return c.check(f.Type, addr)
	}
	names := map[string]string{}
	for _, l := range leaves(t, addr, -1) {
		other, twice := names[l.name]
		switch {
		case l.lost != "":
			return hides(t, l.path, l.lost)
		case twice:
			return hides(t, other+" or "+l.path, fmt.Sprintf("both are named %q", l.name))
		}
		names[l.name] = l.path
		if err := c.check(l.t, l.addr); err != nil {
			return err
		}
	}
	return nil
}

func hides(t reflect.Type, field, why string) error {
	return fmt.Errorf("the JSON of %v leaves out its field %s, because %s: give the type a MarshalJSON of its own, or pass a struct with a named field for each value", t, field, why)
}

// marshaler is a method by which a type writes its own JSON.
type marshaler struct {
	name string
	of   reflect.Type
	// find returns the method of a type. The name is a constant there: with a variable, the
	// linker would have to keep all methods of the program.
	find func(reflect.Type) (reflect.Method, bool)
}

// marshalers are tried in this order.
var marshalers = []marshaler{
	{"MarshalJSON", reflect.TypeFor[json.Marshaler](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("MarshalJSON") }},
	{"MarshalText", reflect.TypeFor[encoding.TextMarshaler](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("MarshalText") }},
}

// marshalMethod returns the method that encoding/json calls for values of a struct, or nil; and the
// embedded field from which it is promoted, or -1 if the struct declares it.
func marshalMethod(t reflect.Type, addr bool, by []marshaler) (*marshaler, int) {
	for i := range by {
		m := &by[i]
		if t.Implements(m.of) || addr && reflect.PointerTo(t).Implements(m.of) {
			_, n := m.depth(t, nil)
			return m, n
		}
	}
	return nil, -1
}

// noDepth is a depth at which no method is.
const noDepth = 1 << 20

// depth returns how deep a type's method is: 0 if the type declares it, and more if it is promoted
// from the embedded field n.
func (m *marshaler) depth(t reflect.Type, on []reflect.Type) (least, n int) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if m.own(t) || m.own(reflect.PointerTo(t)) {
		return 0, -1
	}
	if t.Kind() != reflect.Struct || slices.Contains(on, t) {
		return noDepth, -1
	}
	least, n = noDepth, -1
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			if d, _ := m.depth(f.Type, append(on, t)); d+1 < least {
				least, n = d+1, i
			}
		}
	}
	return least, n
}

// own reports whether a type declares the method itself. The compiler generates promoted methods
// as functions without a source file.
func (m *marshaler) own(t reflect.Type) bool {
	f, ok := m.find(t)
	if !ok || t.Kind() == reflect.Interface {
		return ok
	}
	pc := f.Func.Pointer()
	fn := runtime.FuncForPC(pc)
	if fn == nil {
		return true
	}
	file, _ := fn.FileLine(pc)
	return file != "<autogenerated>"
}

// leaf is a field that has, or should have, a value of its own in a struct's JSON.
type leaf struct {
	name string // in JSON
	path string
	t    reflect.Type
	addr bool
	lost string // why it has none
}

// leaves lists the leaves of a struct, without those of one field, as if no names were equal.
func leaves(t reflect.Type, addr bool, except int) (all []leaf) {
	var add func(t reflect.Type, addr bool, path string, on []reflect.Type)
	add = func(t reflect.Type, addr bool, path string, on []reflect.Type) {
		for i := range t.NumField() {
			if len(on) == 0 && i == except {
				continue
			}
			f := t.Field(i)
			name, inlined, left := fieldName(f)
			if left {
				continue
			}
			l := leaf{name: name, path: path + f.Name, t: f.Type, addr: addr}
			if inlined {
				in, pointer := f.Type, f.Type.Kind() == reflect.Pointer
				if pointer {
					in = in.Elem()
				}
				switch on := append(slices.Clone(on), t); {
				case marshals(in) || marshals(reflect.PointerTo(in)):
					l.lost = "it is embedded, and its method is not called"
				case slices.Contains(on, in):
					l.lost = "it is embedded in itself"
				default:
					add(in, addr || pointer, l.path+".", on)
					continue
				}
			}
			all = append(all, l)
		}
	}
	add(t, addr, "", nil)
	return all
}

// fieldName returns the name by which encoding/json writes a field; or that it writes the fields
// of the embedded struct in place of it; or that it leaves the field out on purpose.
func fieldName(f reflect.StructField) (name string, inlined, left bool) {
	in := f.Type
	if f.Anonymous && in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	embeds := f.Anonymous && in.Kind() == reflect.Struct
	tag := f.Tag.Get("json")
	if tag == "-" || !f.IsExported() && !embeds {
		return "", false, true
	}
	name, _, _ = strings.Cut(tag, ",")
	if strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		name = ""
	}
	if name == "" {
		name, inlined = f.Name, embeds
	}
	return name, inlined, false
}
