package canonical

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text is valid JSON with the positions of its objects, except for empty ones. Positions count
// bytes. A client may send many members, so little is kept of each.
type text struct {
	b       []byte
	objects []object // in the order in which they begin
	members []member // grouped by object, each group in the order of names
	open    []member // of objects whose end has not been found yet
	plain   []byte   // names that have escapes, without these
}

type object struct {
	first, last int32 // in members
	end         int32 // position after it
	next        int32 // the first object that begins after it
}

type member struct {
	raw    span  // the name as it is written, without the quotes
	plain  span  // in text.plain, if the name has escapes; otherwise zero
	at     int32 // position of its value
	object int32 // the first object that begins there or later
}

type span struct{ from, to int32 }

// name returns the name of a member, without escapes.
func (t *text) name(m member) []byte {
	if m.plain != (span{}) {
		return t.plain[m.plain.from:m.plain.to]
	}
	return t.b[m.raw.from:m.raw.to]
}

// newMember returns the member whose name is between two positions and whose value is at a third.
func (t *text) newMember(from, to, at int) member {
	m := member{raw: span{int32(from), int32(to)}, at: int32(at), object: int32(len(t.objects))}
	if raw := t.b[from:to]; bytes.IndexByte(raw, '\\') >= 0 {
		m.plain.from = int32(len(t.plain))
		for len(raw) > 0 {
			r, size := next(raw)
			t.plain, raw = utf8.AppendRune(t.plain, r), raw[size:]
		}
		m.plain.to = int32(len(t.plain))
	}
	return m
}

// find finds the objects of the value at i, and sorts their members. It returns the position after
// the value, or an error if an object has two members of one name.
func (t *text) find(i int) (end int, err error) {
	i = t.space(i)
	switch t.b[i] {
	case '{':
		return t.findMembers(i)
	case '[':
		if i = t.space(i + 1); t.b[i] == ']' {
			return i + 1, nil
		}
		for {
			if i, err = t.find(i); err != nil {
				return 0, err
			}
			if i = t.space(i) + 1; t.b[i-1] == ']' {
				return i, nil
			}
		}
	}
	return t.scalar(i), nil
}

func (t *text) findMembers(i int) (end int, err error) {
	if i = t.space(i + 1); t.b[i] == '}' {
		return i + 1, nil
	}
	this, opened := len(t.objects), len(t.open)
	t.objects = append(t.objects, object{})
	for t.b[i] != '}' {
		if t.b[i] == ',' {
			i = t.space(i + 1)
		}
		behind := t.scalar(i)
		colon := t.space(behind)
		t.open = append(t.open, t.newMember(i+1, behind-1, colon+1))
		i = colon + 1
		if i, err = t.find(i); err != nil {
			return 0, err
		}
		i = t.space(i)
	}
	first := len(t.members)
	t.members, t.open = append(t.members, t.open[opened:]...), t.open[:opened]
	members := t.members[first:]
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(bytes.Compare(t.name(a), t.name(b)), cmp.Compare(a.at, b.at))
	})
	for n := 1; n < len(members); n++ {
		if m := members[n]; bytes.Equal(t.name(m), t.name(members[n-1])) {
			return 0, fmt.Errorf("the member name before byte %d is a duplicate in its object", m.at-1)
		}
	}
	t.objects[this] = object{first: int32(first), last: int32(len(t.members)), end: int32(i) + 1, next: int32(len(t.objects))}
	return i + 1, nil
}

// write appends the canonical form of the value at i. object is the first one that begins there or
// later. It returns the position after the value, and the first object there.
func (t *text) write(out []byte, i, object int) (_ []byte, end, next int) {
	i = t.space(i)
	switch t.b[i] {
	case '{':
		out = append(out, '{')
		if i = t.space(i + 1); t.b[i] == '}' {
			return append(out, '}'), i + 1, object
		}
		o := t.objects[object]
		for n, m := range t.members[o.first:o.last] {
			if n > 0 {
				out = append(out, ',')
			}
			out = append(quote(out, t.b[m.raw.from:m.raw.to]), ':')
			out, _, _ = t.write(out, int(m.at), int(m.object))
		}
		return append(out, '}'), int(o.end), int(o.next)
	case '[':
		out = append(out, '[')
		if i = t.space(i + 1); t.b[i] == ']' {
			return append(out, ']'), i + 1, object
		}
		for {
			out, i, object = t.write(out, i, object)
			i = t.space(i) + 1
			out = append(out, t.b[i-1]) // a comma, or the end
			if t.b[i-1] == ']' {
				return out, i, object
			}
		}
	case '"':
		end = t.scalar(i)
		return quote(out, t.b[i+1:end-1]), end, object
	}
	end = t.scalar(i)
	return append(out, t.b[i:end]...), end, object
}

// space returns the position of the next token.
func (t *text) space(i int) int {
	for i < len(t.b) && (t.b[i] == ' ' || t.b[i] == '\n' || t.b[i] == '\t' || t.b[i] == '\r') {
		i++
	}
	return i
}

// scalar returns the position after the string, number or word at i.
func (t *text) scalar(i int) int {
	if t.b[i] != '"' {
		for i < len(t.b) && (t.b[i] >= '0' && t.b[i] <= '9' || t.b[i] >= 'a' && t.b[i] <= 'z' || t.b[i] == 'E' || t.b[i] == '.' || t.b[i] == '-' || t.b[i] == '+') {
			i++
		}
		return i
	}
	for i++; t.b[i] != '"'; i++ {
		if t.b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// The escapes of one letter, and the characters that they denote.
const (
	letters = "bfnrt"
	meant   = "\b\f\n\r\t"
)

// next returns the first character of a string as it is written, and its length in bytes.
func next(raw []byte) (r rune, size int) {
	switch {
	case raw[0] != '\\':
		return utf8.DecodeRune(raw)
	case raw[1] != 'u':
		if n := strings.IndexByte(letters, raw[1]); n >= 0 {
			return rune(meant[n]), 2
		}
		return rune(raw[1]), 2 // itself
	}
	r = escape(raw, 0)
	if utf16.IsSurrogate(r) {
		return utf16.DecodeRune(r, escape(raw, 6)), 12
	}
	return r, 6
}

// quote appends a string as encoding/json writes it, with the characters escaped that HTML would
// interpret.
func quote(out, raw []byte) []byte {
	out = append(out, '"')
	for plain := 0; ; plain = 0 {
		for plain < len(raw) && isPlain(raw[plain]) {
			plain++
		}
		out, raw = append(out, raw[:plain]...), raw[plain:]
		if len(raw) == 0 {
			return append(out, '"')
		}
		r, size := next(raw)
		out, raw = quoteRune(out, r), raw[size:]
	}
}

// isPlain reports whether a byte of a string is copied, whatever its neighbours are. 0xe2 begins
// the two separators that are escaped.
func isPlain(c byte) bool {
	return c != '\\' && c != '<' && c != '>' && c != '&' && c != 0xe2
}

func quoteRune(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case r < ' ' && strings.IndexByte(meant, byte(r)) >= 0:
		return append(out, '\\', letters[strings.IndexByte(meant, byte(r))])
	case r < ' ' || r == '<' || r == '>' || r == '&':
		return append(out, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
	case r == '\u2028' || r == '\u2029':
		return append(out, '\\', 'u', '2', '0', '2', hex[r&0xf])
	}
	return utf8.AppendRune(out, r)
}
