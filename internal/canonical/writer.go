package canonical

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// writer has the canonical form of what has been read: JSON without space, with the members of each
// object in the order of their names and without the commas between them. Of what is longer than
// most, it has the hash in place of the text. So little is kept of a large text, and little is moved
// when members are sorted, however deep objects are nested.
//
// A hash begins with a byte that no text has, so the form of one JSON is never that of another.
type writer struct {
	out     []byte
	members []member // of the objects that have not ended
	spare   []byte   // members in their order, while they are sorted
}

// member is a member of an object in writer.out: its name, with quotes, and its value.
type member struct {
	from, value, end int32
	front            uint64 // the first bytes of the name, which order most members
}

// name returns the name of a member, with quotes.
func (w *writer) name(m member) []byte { return w.out[m.from:m.value] }

// front returns the first eight bytes of a name as a number that orders as they do.
func front(name []byte) (n uint64) {
	if len(name) >= 8 {
		return binary.BigEndian.Uint64(name)
	}
	for i, c := range name {
		n |= uint64(c) << (56 - 8*i)
	}
	return n
}

// order orders members by their names; in which order does not matter.
func (w *writer) order(a, b member) int {
	if a.front != b.front {
		return cmp.Compare(a.front, b.front)
	}
	return bytes.Compare(w.name(a), w.name(b))
}

const (
	most  = 1 << 10 // of the text of a value, in bytes
	piece = 1 << 12 // of an array or a string whose end has not been read
)

// The bytes before the hash of a whole value, and of the beginning of an array or a string.
const (
	hashed = 1
	begun  = 2
)

// shorten replaces the value from a position on by its hash if it is long.
func (w *writer) shorten(from int) {
	if len(w.out)-from > most {
		w.replace(hashed, from, len(w.out))
	}
}

// cut replaces the array from a position on, as far as it was read, by its hash if that is long.
func (w *writer) cut(from int) {
	if len(w.out)-from > piece {
		w.replace(begun, from, len(w.out))
	}
}

// cutPieces replaces the string from a position on, as far as it was read, by its hash if that is
// long. It may have been read in other pieces in another text, so exact pieces are hashed.
func (w *writer) cutPieces(from int) {
	for len(w.out)-from > piece {
		w.replace(begun, from, from+piece)
	}
}

// replace replaces a part by its hash.
func (w *writer) replace(kind byte, from, to int) {
	sum := sha256.Sum256(w.out[from:to])
	w.out[from] = kind
	copy(w.out[from+1:], sum[:])
	rest := copy(w.out[from+1+len(sum):], w.out[to:])
	w.out = w.out[:from+1+len(sum)+rest]
}

// sum returns the hash of all from a position on.
func (w *writer) sum(from int) Sum { return sha256.Sum256(w.out[from:]) }

// readers are reused: of a large text with many members, they are larger than the text.
var readers = sync.Pool{New: func() any { return new(reader) }}

// kept is the size of a buffer that is kept for the next text, in bytes.
const kept = 16 << 20

func newReader(b []byte) *reader {
	r := readers.Get().(*reader)
	r.b, r.out, r.members = b, r.out[:0], r.members[:0]
	return r
}

func (r *reader) free() {
	r.b = nil
	if cap(r.out)+cap(r.spare)+24*cap(r.members) <= kept {
		readers.Put(r)
	}
}
