package idemhttp

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/etcdkit/etcdkit/idempotency"
)

// framed reports whether the end of a response is not in its status: that of gRPC, gRPC-Web or a stream of
// Connect.
func framed(r *http.Request, resp *http.Response) bool {
	p := protocolOf(r, resp.Header)
	return resp.StatusCode == http.StatusOK && resp.Body != nil && p != plainHTTP && p != connectUnary
}

// call is the body of a framed response. It calls retry if the call has an end that a retry may change, or if
// its end is not read.
type call struct {
	io.ReadCloser
	resp *http.Response

	mu     sync.Mutex // Close may be called during a Read
	frames *frames    // nil for gRPC, which has trailers
	retry  func()     // nil when the end is known
}

func (c *call) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frames != nil {
		c.frames.write(p[:n])
	}
	if err != nil {
		c.end(err)
	}
	return n, err
}

func (c *call) Close() error {
	c.mu.Lock()
	c.end(io.EOF)
	c.mu.Unlock()
	return c.ReadCloser.Close()
}

func (c *call) end(err error) {
	if c.retry != nil && (!errors.Is(err, io.EOF) || !c.final()) {
		c.retry()
	}
	c.retry = nil
}

// final reports whether the call has an end that is recorded.
func (c *call) final() bool {
	end := statusIn(c.resp.Header, c.resp.Trailer)
	if end == nil && c.frames != nil && c.frames.end(c.resp.Header) == nil {
		if c.frames.mark == flagConnectEnd {
			last := endOfStream(c.frames.last)
			end = &last
		} else {
			end = statusIn(fieldsOf(c.frames.last))
		}
	}
	return end != nil && end.kind.Action() == idempotency.Remember
}
