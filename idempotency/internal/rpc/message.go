package rpc

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/etcdkit/etcdkit/idempotency"
)

// ErrByBytes is returned with the fingerprint of a message of which a part was compared byte by byte.
var ErrByBytes = errors.New("it has too much data, or data nested too deep, of types that this program does not know")

// Fingerprint returns the hash of a message: messages that say the same have the same hash, however
// they were encoded. It returns an error for what is not a message of protobuf, and ErrByBytes beside
// the hash of a message that could have another one when it is encoded again.
//
// protobuf's own deterministic encoding is not enough: it copies what is in an Any, and fields that
// the program does not know, as they are, although maps in there are in another order each time; and
// it may be another one in the next release. So the hash is that of a form of its own: fields by
// number, entries of a map by key, the message in an Any in the same form. What this program does not
// know is read as fields, too: see unknown.
func Fingerprint(m any) (sum idempotency.Fingerprint, err error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return sum, fmt.Errorf("%T is not a protobuf message", m)
	}
	w := &formWriter{h: sha256.New(), left: mostFields}
	w.text(string(msg.ProtoReflect().Descriptor().FullName()))
	w.message(msg.ProtoReflect(), 0)
	w.h.Write(w.buf)
	w.h.Sum(sum[:0])
	if w.byBytes {
		return sum, ErrByBytes
	}
	return sum, nil
}

// formWriter writes messages in the form in which they are compared. The form is protobuf's encoding
// with a group in place of each message, so that nothing has to be measured before it is written.
type formWriter struct {
	h       hash.Hash
	buf     []byte // not written to h yet
	left    int    // how many more unknown fields are read
	byBytes bool
}

// flushed is the size of the buffer, in bytes, from which on it is hashed.
const flushed = 4 << 10

// flush keeps the buffer small.
func (w *formWriter) flush() {
	if len(w.buf) >= flushed {
		w.h.Write(w.buf)
		w.buf = w.buf[:0]
	}
}

func (w *formWriter) text(s string) {
	w.buf = protowire.AppendVarint(w.buf, uint64(len(s)))
	for len(s) > 0 {
		n := min(len(s), flushed)
		w.buf, s = append(w.buf, s[:n]...), s[n:]
		w.flush()
	}
}

func (w *formWriter) bytes(b []byte) {
	w.buf = protowire.AppendVarint(w.buf, uint64(len(b)))
	for len(b) > 0 {
		n := min(len(b), flushed)
		w.buf, b = append(w.buf, b[:n]...), b[n:]
		w.flush()
	}
}

func (w *formWriter) tag(n protoreflect.FieldNumber, t protowire.Type) {
	w.buf = protowire.AppendTag(w.buf, n, t)
}

// mostAnys is how deep messages are opened that are in an Any in an Any: each is decoded on its own.
const mostAnys = 16

// message writes the fields of a message, which is within a number of Anys.
func (w *formWriter) message(m protoreflect.Message, anys int) {
	if m.Descriptor().FullName() == "google.protobuf.Any" && w.any(m, anys) {
		return
	}
	var fields []protoreflect.FieldDescriptor
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, fd)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	for _, fd := range fields {
		w.field(fd, m.Get(fd), anys)
	}
	w.unknown(m.GetUnknown(), 0)
}

// any writes an Any with the message in it, or with unknown data if this program does not know its type
// or the data is no such message. It returns false, and writes nothing, for a message that only has
// the name of an Any, and for an Any within too many others.
func (w *formWriter) any(m protoreflect.Message, anys int) bool {
	fields := m.Descriptor().Fields()
	url, value := fields.ByNumber(1), fields.ByNumber(2)
	if fields.Len() != 2 || !isSingle(url, protoreflect.StringKind) || !isSingle(value, protoreflect.BytesKind) {
		return false
	}
	if anys == mostAnys {
		w.byBytes = true
		return false
	}
	t, err := protoregistry.GlobalTypes.FindMessageByURL(m.Get(url).String())
	inner := protoreflect.Message(nil)
	if err == nil {
		inner = t.New()
		err = proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(m.Get(value).Bytes(), inner.Interface())
	}
	w.tag(1, protowire.BytesType)
	w.text(m.Get(url).String())
	if err != nil {
		w.unknownValue(2, m.Get(value).Bytes(), 0)
	} else {
		w.nested(2, inner, anys+1)
	}
	w.unknown(m.GetUnknown(), 0)
	return true
}

// isSingle reports whether a field, nil for none, has one value, of that kind.
func isSingle(fd protoreflect.FieldDescriptor, kind protoreflect.Kind) bool {
	return fd != nil && !fd.IsList() && fd.Kind() == kind
}

// nested writes a message as a group.
func (w *formWriter) nested(n protoreflect.FieldNumber, m protoreflect.Message, anys int) {
	w.tag(n, protowire.StartGroupType)
	w.message(m, anys)
	w.tag(n, protowire.EndGroupType)
	w.flush()
}

func (w *formWriter) field(fd protoreflect.FieldDescriptor, v protoreflect.Value, anys int) {
	switch {
	case fd.IsMap():
		entries := v.Map()
		var keys []protoreflect.MapKey
		entries.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k)
			return true
		})
		slices.SortFunc(keys, keyOrder(fd.MapKey().Kind()))
		for _, k := range keys {
			w.tag(fd.Number(), protowire.StartGroupType)
			w.single(fd.MapKey(), k.Value(), anys)
			w.single(fd.MapValue(), entries.Get(k), anys)
			w.tag(fd.Number(), protowire.EndGroupType)
		}
	case fd.IsList():
		for i, list := 0, v.List(); i < list.Len(); i++ {
			w.single(fd, list.Get(i), anys)
		}
	default:
		w.single(fd, v, anys)
	}
}

// keyOrder returns a function that orders the keys of a map, which are of that kind.
func keyOrder(kind protoreflect.Kind) func(a, b protoreflect.MapKey) int {
	switch kind {
	case protoreflect.StringKind:
		return func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) }
	case protoreflect.BoolKind:
		return func(a, b protoreflect.MapKey) int {
			return cmp.Compare(protowire.EncodeBool(a.Bool()), protowire.EncodeBool(b.Bool()))
		}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return func(a, b protoreflect.MapKey) int { return cmp.Compare(a.Uint(), b.Uint()) }
	}
	return func(a, b protoreflect.MapKey) int { return cmp.Compare(a.Int(), b.Int()) }
}

// single writes one value of a field.
func (w *formWriter) single(fd protoreflect.FieldDescriptor, v protoreflect.Value, anys int) {
	number := fd.Number()
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		w.nested(number, v.Message(), anys)
	case protoreflect.StringKind:
		w.tag(number, protowire.BytesType)
		w.text(v.String())
	case protoreflect.BytesKind:
		w.tag(number, protowire.BytesType)
		w.bytes(v.Bytes())
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		w.tag(number, protowire.Fixed64Type)
		w.buf = protowire.AppendFixed64(w.buf, math.Float64bits(v.Float()))
	case protoreflect.BoolKind:
		w.integer(number, protowire.EncodeBool(v.Bool()))
	case protoreflect.EnumKind:
		w.integer(number, uint64(int64(v.Enum())))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		w.integer(number, v.Uint())
	default:
		w.integer(number, uint64(v.Int()))
	}
	w.flush()
}

func (w *formWriter) integer(number protoreflect.FieldNumber, v uint64) {
	w.tag(number, protowire.VarintType)
	w.buf = protowire.AppendVarint(w.buf, v)
}
