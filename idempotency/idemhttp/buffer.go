package idemhttp

import (
	"bytes"
	"sync"
)

// buffers are those of large bodies that no handler has got: a new one of a mebibyte takes longer
// than the hash of what is in it.
var buffers sync.Pool // of *bytes.Buffer

// The sizes of the bodies, in bytes, whose buffers are used again.
const (
	leastReused = 64 << 10
	mostReused  = 4 << 20
)

// bufferFor returns an empty buffer for a body of that length; of one below 0, nothing is known.
func bufferFor(length int64) *bytes.Buffer {
	buf := new(bytes.Buffer)
	if length >= leastReused && length <= mostReused {
		if used, ok := buffers.Get().(*bytes.Buffer); ok {
			buf = used
		}
	}
	if length > 0 {
		buf.Grow(int(length) + bytes.MinRead)
	}
	return buf
}

// reuse makes the buffer of a body one for other requests. Nothing may use the body any more.
func reuse(body []byte) {
	if cap(body) >= leastReused && cap(body) <= 2*mostReused {
		buffers.Put(bytes.NewBuffer(body[:0]))
	}
}
