package limithttp

import (
	"io"
	"net/http"
)

// read reads the body of a request, if it is no larger than Buffer, and returns the body for the handler; nil is
// the body as it is. In HTTP/1 net/http notices that a client has left only once the body is read. A body of
// unknown length is not read: it may be a live upload, or its client may wait for the beginning of the response
// before it sends more. A read that has begun cannot be ended, and must not run beside the handler.
func (c *config) read(r *http.Request) io.ReadCloser {
	n := r.ContentLength
	if c.Buffer < 0 || r.Body == nil || r.Body == http.NoBody || n <= 0 || n > c.Buffer || r.Header.Get("Expect") != "" {
		return nil
	}
	data := make([]byte, n)
	got, err := io.ReadFull(r.Body, data)
	return &buffered{data: data[:got], err: err, rest: r.Body}
}

// buffered is a body whose beginning was read.
type buffered struct {
	data []byte
	err  error // of reading it
	rest io.ReadCloser
}

// Read reads the body. It returns the errors of the server's body.
func (b *buffered) Read(p []byte) (int, error) {
	if len(b.data) > 0 {
		n := copy(p, b.data)
		b.data = b.data[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

// Close closes the server's body. It returns its error.
func (b *buffered) Close() error {
	b.data = nil
	return b.rest.Close()
}
