package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/idempotency"
)

// sumOf returns the fingerprint of a message that can be compared.
func sumOf(t testing.TB, m proto.Message) idempotency.Fingerprint {
	t.Helper()
	sum, err := Fingerprint(m)
	require.NoError(t, err)
	return sum
}

// everyKind is a message with a field, a list and a map of each kind.
func everyKind(t testing.TB) protoreflect.MessageDescriptor {
	msg := &descriptorpb.DescriptorProto{Name: proto.String("All")}
	n := int32(0)
	field := func(name string, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(n), Type: kind.Enum(), Label: label.Enum()}
		if kind == descriptorpb.FieldDescriptorProto_TYPE_MESSAGE {
			f.TypeName = proto.String(".test.All")
		}
		return f
	}
	for kind := range descriptorpb.FieldDescriptorProto_Type_name {
		kind := descriptorpb.FieldDescriptorProto_Type(kind)
		if kind == descriptorpb.FieldDescriptorProto_TYPE_GROUP || kind == descriptorpb.FieldDescriptorProto_TYPE_ENUM {
			continue
		}
		name := strings.ToLower(strings.TrimPrefix(kind.String(), "TYPE_"))
		n++
		msg.Field = append(msg.Field, field("one_"+name, kind, descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL))
		n++
		msg.Field = append(msg.Field, field("many_"+name, kind, descriptorpb.FieldDescriptorProto_LABEL_REPEATED))
	}
	keys := []descriptorpb.FieldDescriptorProto_Type{descriptorpb.FieldDescriptorProto_TYPE_BOOL, descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_SINT32,
		descriptorpb.FieldDescriptorProto_TYPE_INT64, descriptorpb.FieldDescriptorProto_TYPE_UINT32, descriptorpb.FieldDescriptorProto_TYPE_FIXED64}
	for i, key := range keys {
		entry := &descriptorpb.DescriptorProto{Name: proto.String(fmt.Sprintf("Map%dEntry", i)), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}}
		last := n
		n = 1
		entry.Field = append(entry.Field, field("key", key, descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL))
		n = 2
		entry.Field = append(entry.Field, field("value", descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL))
		n = last + 1
		msg.NestedType = append(msg.NestedType, entry)
		f := field(fmt.Sprintf("map%d", i), descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_LABEL_REPEATED)
		f.TypeName = proto.String(".test.All." + entry.GetName())
		msg.Field = append(msg.Field, f)
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("all.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{msg}}, nil)
	require.NoError(t, err)
	return file.Messages().Get(0)
}

// Messages with a value in one field, in a list or in a map, whatever its kind is, differ from each
// other, and are the same when they were encoded and decoded.
func TestFieldsOfEveryKind(t *testing.T) {
	t.Parallel()
	d := everyKind(t)
	inner := func(text string) protoreflect.Value {
		m := dynamicpb.NewMessage(d)
		m.Set(d.Fields().ByName("one_string"), protoreflect.ValueOfString(text))
		return protoreflect.ValueOfMessage(m)
	}
	values := map[protoreflect.Kind][2]protoreflect.Value{}
	add := func(one, two any, kinds ...protoreflect.Kind) {
		for _, k := range kinds {
			values[k] = [2]protoreflect.Value{protoreflect.ValueOf(one), protoreflect.ValueOf(two)}
		}
	}
	add(int32(1), int32(-2), protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind)
	add(int64(1), int64(-2), protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind)
	add(uint32(1), uint32(2), protoreflect.Uint32Kind, protoreflect.Fixed32Kind)
	add(uint64(1), uint64(2), protoreflect.Uint64Kind, protoreflect.Fixed64Kind)
	add(float32(1), float32(-2), protoreflect.FloatKind)
	add(float64(1), float64(-2), protoreflect.DoubleKind)
	add("a", "b", protoreflect.StringKind)
	add([]byte("a"), []byte(strings.Repeat("b", 5000)), protoreflect.BytesKind)
	add(true, false, protoreflect.BoolKind)
	values[protoreflect.MessageKind] = [2]protoreflect.Value{inner("a"), inner(strings.Repeat("b", 5000))}

	seen := map[idempotency.Fingerprint]string{}
	check := func(what string, m *dynamicpb.Message) {
		t.Helper()
		sum := sumOf(t, m)
		require.NotContains(t, seen, sum, what)
		seen[sum] = what
		for range 3 {
			b, err := proto.Marshal(m)
			require.NoError(t, err)
			again := dynamicpb.NewMessage(d)
			require.NoError(t, proto.Unmarshal(b, again))
			require.Equal(t, sum, sumOf(t, again), what)
		}
	}
	check("nothing", dynamicpb.NewMessage(d))
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		switch {
		case fd.IsMap():
			two := values[fd.MapKey().Kind()]
			for n, order := range [][]int{{0}, {1}, {0, 1}} {
				m := dynamicpb.NewMessage(d)
				for at, k := range order {
					m.Mutable(fd).Map().Set(two[k].MapKey(), values[protoreflect.MessageKind][at])
				}
				check(fmt.Sprint(fd.Name(), n), m)
			}
		case fd.IsList():
			for n, order := range [][]int{{0}, {1}, {0, 1}, {1, 0}, {0, 0}} {
				m := dynamicpb.NewMessage(d)
				for _, k := range order {
					m.Mutable(fd).List().Append(values[fd.Kind()][k])
				}
				check(fmt.Sprint(fd.Name(), n), m)
			}
		default:
			for n, v := range values[fd.Kind()] {
				if v.Equal(fd.Default()) {
					continue
				}
				m := dynamicpb.NewMessage(d)
				m.Set(fd, v)
				check(fmt.Sprint(fd.Name(), n), m)
			}
		}
	}
	require.Greater(t, len(seen), 100)
}

// What is in an Any counts, and its type.
func TestAnys(t *testing.T) {
	t.Parallel()
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		require.NoError(t, err)
		return a
	}
	one := pack(wrapperspb.String("a"))
	for name, other := range map[string]*anypb.Any{
		"another value":    pack(wrapperspb.String("b")),
		"another type":     pack(wrapperspb.Bytes([]byte("a"))),
		"no value":         {TypeUrl: one.GetTypeUrl()},
		"no message in it": {TypeUrl: one.GetTypeUrl(), Value: []byte("\xff")},
		"another in it":    pack(one),
		"another prefix":   {TypeUrl: "example.com/google.protobuf.StringValue", Value: one.GetValue()},
	} {
		require.NotEqual(t, sumOf(t, one), sumOf(t, other), name)
	}
	require.NotEqual(t, sumOf(t, wrapperspb.String("a")), sumOf(t, wrapperspb.Bytes([]byte("a"))))
}

// field returns an encoded field.
func field(number protowire.Number, value any) []byte {
	switch v := value.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(v))
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(value.([][]byte)...))
}

// Of fields that this program does not know, the order counts among those of one number, except that
// of what can be the entries of a map.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	unknown := func(fields ...[]byte) proto.Message {
		m := new(emptypb.Empty)
		m.ProtoReflect().SetUnknown(slices.Concat(fields...))
		return m
	}
	entry := func(key, value any) []byte { return field(5, [][]byte{field(1, key), field(2, value)}) }
	swapped := func(key, value any) []byte { return field(5, [][]byte{field(2, value), field(1, key)}) }
	group := func(fields ...[]byte) []byte {
		b := append(protowire.AppendTag(nil, 9, protowire.StartGroupType), slices.Concat(fields...)...)
		return protowire.AppendTag(b, 9, protowire.EndGroupType)
	}
	for name, two := range map[string]struct {
		one, other proto.Message
		same       bool
	}{
		"two numbers":                {unknown(field(1, 1), field(2, 2)), unknown(field(2, 2), field(1, 1)), true},
		"one number":                 {unknown(field(1, 1), field(1, 2)), unknown(field(1, 2), field(1, 1)), false},
		"texts":                      {unknown(field(1, "a"), field(1, "b")), unknown(field(1, "b"), field(1, "a")), false},
		"another value":              {unknown(field(1, 1)), unknown(field(1, 2)), false},
		"another number":             {unknown(field(1, 1)), unknown(field(2, 1)), false},
		"no field":                   {unknown(field(1, 0)), unknown(), false},
		"entries":                    {unknown(entry("a", 1), entry("b", 2)), unknown(entry("b", 2), entry("a", 1)), true},
		"fields of an entry":         {unknown(entry("a", 1), entry("b", 2)), unknown(swapped("b", 2), swapped("a", 1)), true},
		"entries with other values":  {unknown(entry("a", 1), entry("b", 2)), unknown(entry("a", 2), entry("b", 1)), false},
		"a key of zero":              {unknown(entry(3, 1), field(5, [][]byte{field(2, 2)})), unknown(field(5, [][]byte{field(2, 2)}), entry(3, 1)), true},
		"one key twice":              {unknown(entry("a", 1), entry("a", 2)), unknown(entry("a", 2), entry("a", 1)), false},
		"one key twice, and another": {unknown(entry("a", 1), entry("b", 2), entry("a", 3)), unknown(entry("b", 2), entry("a", 1), entry("a", 3)), false},
		"messages of three fields":   {unknown(field(5, [][]byte{field(3, 1)}), field(5, [][]byte{field(3, 2)})), unknown(field(5, [][]byte{field(3, 2)}), field(5, [][]byte{field(3, 1)})), false},
		"a map in a message":         {unknown(field(7, [][]byte{entry("a", 1), entry("b", 2)})), unknown(field(7, [][]byte{entry("b", 2), entry("a", 1)})), true},
		"a map in a map":             {unknown(field(7, [][]byte{field(1, "k"), field(2, [][]byte{entry("a", 1), entry("b", 2)})})), unknown(field(7, [][]byte{field(1, "k"), field(2, [][]byte{entry("b", 2), entry("a", 1)})})), true},
		"a map in a group":           {unknown(group(entry("a", 1), entry("b", 2))), unknown(group(entry("b", 2), entry("a", 1))), true},
		"another group":              {unknown(group(entry("a", 1))), unknown(group(entry("a", 2))), false},
		"a text and a message":       {unknown(field(7, "\xff")), unknown(field(7, "\xfe")), false},
	} {
		require.Equal(t, two.same, sumOf(t, two.one) == sumOf(t, two.other), name)
	}
}

// What is nested too deep, or is too much, is compared byte by byte, and Fingerprint says so: a client
// cannot make a server work for long.
func TestUnknownDataWithoutEnd(t *testing.T) {
	t.Parallel()
	deep := field(1, [][]byte{field(1, "x"), field(2, "y")})
	for range mostUnknown + 1 {
		deep = field(1, [][]byte{deep})
	}
	nested := proto.Message(wrapperspb.String("a"))
	for range mostAnys + 2 {
		packed, err := anypb.New(nested)
		require.NoError(t, err)
		nested = packed
	}
	for name, m := range map[string]proto.Message{
		"deep": &anypb.Any{Value: deep}, "much": &anypb.Any{Value: []byte(strings.Repeat("\x08\x01", mostFields+1))}, "Anys": nested,
	} {
		sum, err := Fingerprint(m)
		require.ErrorIs(t, err, ErrByBytes, name)
		again, _ := Fingerprint(proto.Clone(m))
		require.Equal(t, sum, again, name)
	}
	_, err := Fingerprint("no message")
	require.ErrorContains(t, err, "string is not a protobuf message")
}

// Fingerprints are stored: those of a message stay as they are.
func TestFingerprintGolden(t *testing.T) {
	t.Parallel()
	s, err := structpb.NewStruct(map[string]any{"a": []any{1, "x", nil, true}, "b": map[string]any{"c": 2.5}})
	require.NoError(t, err)
	packed, err := anypb.New(s)
	require.NoError(t, err)
	for want, m := range map[string]proto.Message{"5da26d02ff51a234": s, "7c1b8820a50b0960": packed, "dd3345662785a7a0": new(emptypb.Empty)} {
		sum := sumOf(t, m)
		require.Equal(t, want, fmt.Sprintf("%x", sum[:8]))
	}
}

// A110: a field that was sent as a group, where the program knows a message, is unknown to the program, which
// acts as if it were not there: it is another message than one with the field.
func TestGroupInPlaceOfAMessage(t *testing.T) {
	t.Parallel()
	var one, other structpb.ListValue
	require.NoError(t, proto.Unmarshal([]byte("\x0a\x02\x20\x01"), &one))
	require.NoError(t, proto.Unmarshal([]byte("\x0b\x20\x01\x0c"), &other))
	require.Len(t, one.GetValues(), 1)
	require.Empty(t, other.GetValues())
	a, err := Fingerprint(&one)
	require.NoError(t, err)
	b, err := Fingerprint(&other)
	require.NoError(t, err)
	require.NotEqual(t, a, b)
}

// D26: a message that only has the name of an Any, with other fields, is compared as the message that it is. A list in
// place of a field was a panic.
func TestMessagesNamedAny(t *testing.T) {
	t.Parallel()
	const text, data, number = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES, descriptorpb.FieldDescriptorProto_TYPE_INT32
	type field struct {
		number int32
		kind   descriptorpb.FieldDescriptorProto_Type
		list   bool
	}
	for name, fields := range map[string][]field{
		"a list of types":    {{1, text, true}, {2, data, false}},
		"a list of values":   {{1, text, false}, {2, data, true}},
		"other kinds":        {{1, number, false}, {2, number, true}},
		"other numbers":      {{3, text, false}, {4, data, false}},
		"an Any as it is":    {{1, text, false}, {2, data, false}},
		"an Any with a list": {{1, text, false}, {2, data, false}, {3, text, true}},
	} {
		desc := &descriptorpb.DescriptorProto{Name: proto.String("Any")}
		for _, x := range fields {
			label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
			if x.list {
				label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
			}
			desc.Field = append(desc.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String(fmt.Sprint("f", x.number)), Number: proto.Int32(x.number), Type: x.kind.Enum(), Label: label.Enum()})
		}
		file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("odd.proto"), Package: proto.String("google.protobuf"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{desc}}, nil)
		require.NoError(t, err)
		sums := map[idempotency.Fingerprint]bool{}
		for _, value := range []string{"a", "b"} {
			m := dynamicpb.NewMessage(file.Messages().Get(0))
			for i, x := range fields {
				fd := m.Descriptor().Fields().Get(i)
				value := value
				if i < len(fields)-1 {
					value = "the same"
				}
				v := map[descriptorpb.FieldDescriptorProto_Type]protoreflect.Value{text: protoreflect.ValueOfString(value), data: protoreflect.ValueOfBytes([]byte(value)), number: protoreflect.ValueOfInt32(int32(value[0]))}[x.kind]
				if x.list {
					list := m.Mutable(fd).List()
					list.Append(v)
					list.Append(v)
				} else {
					m.Set(fd, v)
				}
			}
			require.NotPanics(t, func() { sums[sumOf(t, m)] = true }, name)
		}
		require.Len(t, sums, 2, name)
	}
}
