package idemgrpc

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/etcdkit/etcdkit/idempotency"
)

// errByBytes is returned with the fingerprint of a message of which a part was compared byte by byte.
var errByBytes = errors.New("it has too much data, or data nested too deep, of types that this program does not know")

// fingerprint returns the hash of a message: messages that say the same have the same hash, however
// they were encoded. It returns an error for what is not a message of protobuf, and errByBytes beside
// the hash of a message that could have another one when it is encoded again.
//
// protobuf's own deterministic encoding is not enough: it copies what is in an Any, and fields that
// the program does not know, as they are, although maps in there are in another order each time; and
// it may be another one in the next release. So the hash is that of a form of its own: fields by
// number, entries of a map by key, the message in an Any in the same form. What this program does not
// know is read as fields, too: see unknown.
func fingerprint(req any) (sum idempotency.Fingerprint, err error) {
	m, ok := req.(proto.Message)
	if !ok {
		return sum, fmt.Errorf("%T is not a protobuf message", req)
	}
	w := &formWriter{h: sha256.New(), left: mostFields}
	w.text(string(m.ProtoReflect().Descriptor().FullName()))
	w.message(m.ProtoReflect(), 0)
	w.h.Write(w.buf)
	w.h.Sum(sum[:0])
	if w.byBytes {
		return sum, errByBytes
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

// flush keeps the buffer small.
func (w *formWriter) flush() {
	if len(w.buf) > 4<<10 {
		w.h.Write(w.buf)
		w.buf = w.buf[:0]
	}
}

func (w *formWriter) text(s string) {
	w.buf = protowire.AppendString(w.buf, s)
	w.flush()
}

func (w *formWriter) bytes(b []byte) {
	w.buf = protowire.AppendVarint(w.buf, uint64(len(b)))
	if len(b) < 1<<10 {
		w.buf = append(w.buf, b...)
	} else {
		w.h.Write(w.buf)
		w.h.Write(b)
		w.buf = w.buf[:0]
	}
	w.flush()
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

// any writes an Any with the message in it. It returns false if this program does not know its type,
// or the value is no such message.
func (w *formWriter) any(m protoreflect.Message, anys int) bool {
	fields := m.Descriptor().Fields()
	url, value := fields.ByNumber(1), fields.ByNumber(2)
	if url == nil || value == nil || url.Kind() != protoreflect.StringKind || value.Kind() != protoreflect.BytesKind {
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
		slices.SortFunc(keys, compareKeys)
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

// compareKeys orders the keys of one map.
func compareKeys(a, b protoreflect.MapKey) int {
	switch x := a.Interface().(type) {
	case bool:
		if x == b.Bool() {
			return 0
		} else if x {
			return 1
		}
		return -1
	case string:
		return cmp.Compare(x, b.String())
	case int32, int64:
		return cmp.Compare(a.Int(), b.Int())
	}
	return cmp.Compare(a.Uint(), b.Uint())
}

// single writes one value of a field.
func (w *formWriter) single(fd protoreflect.FieldDescriptor, v protoreflect.Value, anys int) {
	switch x := v.Interface().(type) {
	case protoreflect.Message:
		w.nested(fd.Number(), x, anys)
	case string:
		w.tag(fd.Number(), protowire.BytesType)
		w.text(x)
	case []byte:
		w.tag(fd.Number(), protowire.BytesType)
		w.bytes(x)
	case float32:
		w.tag(fd.Number(), protowire.Fixed32Type)
		w.buf = protowire.AppendFixed32(w.buf, math.Float32bits(x))
	case float64:
		w.tag(fd.Number(), protowire.Fixed64Type)
		w.buf = protowire.AppendFixed64(w.buf, math.Float64bits(x))
	default:
		w.tag(fd.Number(), protowire.VarintType)
		w.buf = binary.AppendUvarint(w.buf, integer(x))
	}
	w.flush()
}

// integer returns a value that is no message, text or float as one number.
func integer(v any) uint64 {
	switch x := v.(type) {
	case bool:
		return protowire.EncodeBool(x)
	case int32:
		return uint64(int64(x))
	case int64:
		return uint64(x)
	case uint32:
		return uint64(x)
	case uint64:
		return x
	case protoreflect.EnumNumber:
		return uint64(int64(x))
	}
	panic(fmt.Sprintf("idemgrpc: a field of protobuf has a %T", v))
}
