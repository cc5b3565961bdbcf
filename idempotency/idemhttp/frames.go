package idemhttp

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// frames finds the last frame of a body of gRPC-Web or of a stream of Connect while it is written, so that
// it is found in a body that is not kept, too. A frame is a byte of flags, its length in four bytes, and as
// many bytes.
type frames struct {
	mark byte // the flag of the last frame
	text bool // the body is in base64

	quad []byte // of base64, until there are four characters
	head []byte // of the frame under way, until there are five bytes
	rest uint32 // bytes of it that are to come
	last []byte // what there is of the last frame; nil before it
	gzip bool   // its content is compressed
	long bool   // it is longer than maxLast
	over bool   // it is complete
}

// maxLast bounds the memory for a last frame. Servers and clients limit headers to less.
const maxLast = 64 << 10

// The flags of a frame.
const (
	flagCompressed = 0x01
	flagConnectEnd = 0x02
	flagWebEnd     = 0x80
)

// frame returns a frame.
func frame(flags byte, content string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(content))), content...)
}

// framesOf returns the frames of a body in that protocol; nil if it has none.
func framesOf(p protocol) *frames {
	switch p {
	case grpcWeb, grpcWebText:
		return &frames{mark: flagWebEnd, text: p == grpcWebText}
	case connectStream:
		return &frames{mark: flagConnectEnd}
	}
	return nil
}

// write reads a part of the body.
func (f *frames) write(p []byte) {
	if !f.text {
		f.read(p)
		return
	}
	// Parts of a body may be encoded one by one, so padding occurs within it.
	for _, c := range p {
		if f.quad = append(f.quad, c); len(f.quad) == 4 {
			var b [3]byte
			n, _ := base64.StdEncoding.Decode(b[:], f.quad)
			f.read(b[:n])
			f.quad = f.quad[:0]
		}
	}
}

func (f *frames) read(p []byte) {
	for len(p) > 0 && !f.over {
		if n := min(5-len(f.head), len(p)); n > 0 {
			f.head, p = append(f.head, p[:n]...), p[n:]
			if len(f.head) < 5 {
				return
			}
			f.rest = binary.BigEndian.Uint32(f.head[1:])
			if f.head[0]&f.mark != 0 {
				f.last, f.gzip = []byte{}, f.head[0]&flagCompressed != 0
			}
		}
		n := min(int64(f.rest), int64(len(p)))
		if f.last != nil {
			if f.long = f.long || len(f.last)+int(n) > maxLast; !f.long {
				f.last = append(f.last, p[:n]...)
			}
		}
		if f.rest, p = f.rest-uint32(n), p[n:]; f.rest == 0 {
			f.head, f.over = f.head[:0], f.last != nil
		}
	}
}

var errLong = fmt.Errorf("the last frame of the response has more than %d bytes", maxLast)

// end decodes the last frame. It returns an error if there is none, or if it cannot be read. h has the
// headers of the response.
func (f *frames) end(h http.Header) error {
	switch {
	case !f.over:
		f.last = nil
		return errors.New("the response has no last frame")
	case f.long:
		return errLong
	case !f.gzip:
		return nil
	}
	coding := h.Get("Grpc-Encoding") + h.Get("Connect-Content-Encoding") // it has one of them
	if coding != "gzip" {
		return fmt.Errorf("the last frame of the response is compressed by %q, not by gzip", coding)
	}
	r, err := gzip.NewReader(bytes.NewReader(f.last))
	if err == nil {
		f.gzip = false
		f.last, err = io.ReadAll(io.LimitReader(r, maxLast+1))
		if f.long = len(f.last) > maxLast; f.long { // its status may be in the rest
			return errLong
		}
	}
	if err != nil {
		return fmt.Errorf("the last frame of the response cannot be decompressed: %w", err)
	}
	return nil
}
