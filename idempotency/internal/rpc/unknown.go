package rpc

import (
	"bytes"
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// wireField is a field of a message as it is encoded.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // after the tag; without the length of a BytesType, and the end of a group
}

// wireFields returns the fields of an encoded message. It returns false if b is none, or has more
// fields than may be read.
func (w *formWriter) wireFields(b []byte) (fields []wireField, ok bool) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return nil, false
		}
		if w.left == 0 {
			w.byBytes = true
			return nil, false
		}
		w.left--
		value := b[n : n+size]
		switch kind {
		case protowire.BytesType:
			value, _ = protowire.ConsumeBytes(value)
		case protowire.StartGroupType:
			value, _ = protowire.ConsumeGroup(number, value)
		}
		fields = append(fields, wireField{number, kind, value})
		b = b[n+size:]
	}
	return fields, true
}

// How deep data of unknown types is read, where each level is read anew, and how many fields of it in
// a message: a client could send much for little.
const (
	mostUnknown = 16
	mostFields  = 1 << 19
)

// unknown writes fields that this program does not know. Encoders may write fields and the entries of
// a map in any order, so fields are written by number, and what can only be the entries of a map by
// key: see mapKeys. All else is in the order in which it was sent.
//
// So two messages have one form if they differ in the order of a list of an unknown type that looks
// like a map. That is taken for the same message on purpose: the program does not know the list, so
// its work does not depend on it, and a caller that repeats a call with its key has to get its answer.
func (w *formWriter) unknown(b []byte, depth int) {
	if len(b) == 0 {
		return
	}
	fields, ok := w.wireFields(b)
	if !ok {
		w.bytes(b)
		return
	}
	w.unknownFields(fields, depth)
}

func (w *formWriter) unknownFields(fields []wireField, depth int) {
	slices.SortStableFunc(fields, func(a, b wireField) int { return cmp.Compare(a.number, b.number) })
	for len(fields) > 0 {
		n := 1
		for n < len(fields) && fields[n].number == fields[0].number {
			n++
		}
		same := fields[:n]
		if keys, ok := w.mapKeys(same); ok {
			same = sortedBy(same, keys)
		}
		for _, field := range same {
			if field.kind == protowire.BytesType || field.kind == protowire.StartGroupType {
				if field.kind == protowire.StartGroupType {
					w.buf = append(w.buf, 0) // no tag: a known field of that number, sent as a message, is another one
				}
				w.unknownValue(field.number, field.value, depth)
				continue
			}
			w.tag(field.number, field.kind)
			w.buf = append(w.buf, field.value...)
			w.flush()
		}
		fields = fields[n:]
	}
}

// unknownValue writes bytes, a text or a message, whichever it is. What can be read as a message is written as
// one, but for a readable text: "0A8B" and "8B0A" would be one message with its fields in two orders. A message
// that is a readable text has no map in it, whose entries encoders write in any order: the tag of an entry's key,
// and its length if it is empty, are control characters.
func (w *formWriter) unknownValue(number protowire.Number, b []byte, depth int) {
	if readable(b) {
		w.tag(number, protowire.BytesType)
		w.bytes(b)
		return
	}
	fields, ok := w.wireFields(b)
	if ok && len(fields) > 0 && depth == mostUnknown {
		w.byBytes, ok = true, false
	}
	if !ok || len(fields) == 0 {
		w.tag(number, protowire.BytesType)
		w.bytes(b)
		return
	}
	w.tag(number, protowire.StartGroupType)
	w.unknownFields(fields, depth+1)
	w.tag(number, protowire.EndGroupType)
	w.flush()
}

// readable reports whether b is a text without control characters.
func readable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, unicode.IsControl)
}

// mapKeys returns the keys of fields of one number if they can be the entries of a map: messages of
// at most a key (1) and a value (2), with a different key each. Of a key of zero, the field may be
// left out.
func (w *formWriter) mapKeys(fields []wireField) (keys [][]byte, ok bool) {
	if len(fields) < 2 {
		return nil, false
	}
	seen := make(map[string]bool, len(fields))
	for _, field := range fields {
		if field.kind != protowire.BytesType {
			return nil, false
		}
		entry, ok := w.wireFields(field.value)
		if !ok || len(entry) > 2 {
			return nil, false
		}
		var key []byte
		has := [3]bool{}
		for _, e := range entry {
			if e.number > 2 || has[e.number] {
				return nil, false
			}
			has[e.number] = true
			if e.number == 1 {
				key = e.value
			}
		}
		if seen[string(key)] {
			return nil, false
		}
		seen[string(key)] = true
		keys = append(keys, key)
	}
	return keys, true
}

// sortedBy returns fields in the order of their keys.
func sortedBy(fields []wireField, keys [][]byte) []wireField {
	order := make([]int, len(fields))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	sorted := make([]wireField, len(fields))
	for i, from := range order {
		sorted[i] = fields[from]
	}
	return sorted
}
