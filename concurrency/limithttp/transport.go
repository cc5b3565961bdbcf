package limithttp

import (
	"io"
	"net/http"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Transport returns an http.RoundTripper that sends each request under a permit of its key. The
// permit is held until the response's body is closed or read to its end, until the request fails, or
// until the request's context ends, whichever comes first. A response that can have no body holds none; its
// trailers, and the request's context, come to that end nevertheless. After a 101
// (Switching Protocols) the end of what the server sends does not count: this side may still send.
// The body's last Read, or Close, waits for etcd to confirm the release, at most for 2
// seconds. If the permit is lost, the request's context ends with concurrency.ErrLost as its cause.
//
// A body that is neither closed nor read keeps its permit for as long as the process lives: other
// processes have one less. ReportError is called when a request has held its permit for 5 minutes, at most once an
// hour, with the number of such requests. concurrency.MaxHold, in Options.Each, bounds that time.
//
// A request that gets no permit fails with ErrNotSent and the errors of concurrency.Semaphore.Acquire, such as a
// *concurrency.FullError, and one that gets no token with ErrNotSent and those of concurrency.RateLimiter.Allow,
// such as a *concurrency.RateExceededError. The Outage policy and the bound of the wait are those of
// a Middleware.
//
// Base may send a request more than once, under the same permit and token: an *http.Transport repeats a
// GET, or a request with an Idempotency-Key, on one kept connection after the other, if the server closes them
// without an answer. With DisableKeepAlives it sends each once.
//
// Base sends the requests; nil means http.DefaultTransport. Transport returns concurrency.ErrInvalid
// if the limiter is nil and Options.Rate as well, or an option is missing or out of range. The
// RoundTripper is safe for concurrent use.
func Transport(lim concurrency.Limiter, opts Options, base http.RoundTripper) (http.RoundTripper, error) {
	c, err := configure("transport", lim, opts)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{c, base}, nil
}

type transport struct {
	*config
	base http.RoundTripper
}

// RoundTrip sends a request under a permit. It returns the errors of Semaphore.Acquire and of
// RateLimiter.Allow, with ErrNotSent, method and host, and those of base.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, limited := t.limited(r)
	if !limited {
		return t.base.RoundTrip(r)
	}
	report := func(err error) { t.ReportError(r, err) }
	out, err := t.shared.Acquire(r.Context(), key, t.each(r), report)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		if t.shared.Refuse(r.Context(), key, false, err).Report {
			report(err)
		}
		return nil, notSent(r, err)
	}
	reads := false
	defer func() {
		if !reads {
			out.End() // it has failed or panicked, or there is nothing to read
		}
	}()
	own := r.WithContext(out.Context)
	resp, err := t.base.RoundTrip(own)
	if err != nil || resp == nil {
		return nil, err
	}
	if resp.Request == nil || resp.Request == own { // or base's, with headers of its own: a redirect repeats its Idempotency-Key
		resp.Request = r
	}
	if resp.Body == nil { // of a RoundTripper of the caller's own
		if resp.ContentLength > 0 && r.Method != http.MethodHead {
			return resp, nil // an http.Client says what is wrong
		}
		resp.Body = http.NoBody
	}
	if reads = resp.Body != http.NoBody; reads {
		if empty(r.Method, resp) {
			out.Release() // trailers may be to come: they are read with the end of the body, and end with the context
		}
		resp.Body = hold(resp.Body, out.End)
	}
	return resp, nil
}

// empty reports whether a response has no body, so that its caller need not close it. In HTTP/1
// its value shows that, in HTTP/2 and 3 its length.
func empty(method string, resp *http.Response) bool {
	switch {
	case resp.ProtoMajor < 2 || method == http.MethodConnect:
		return false // a RoundTripper of the caller's own need not set the length
	}
	return resp.ContentLength == 0 || method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// hold returns a body that calls end at its end.
func hold(body io.ReadCloser, end func()) io.ReadCloser {
	b := &held{body, end}
	w, writes := body.(io.ReadWriteCloser) // the connection, after 101
	c, closes := body.(closesWrite)
	switch {
	case writes && closes:
		return struct {
			upgraded
			io.Writer
			closesWrite
		}{upgraded{b}, w, c}
	case writes:
		return struct {
			*held
			io.Writer
		}{b, w}
	}
	return b
}

// held is a response's body whose permit is held until its end.
type held struct {
	io.ReadCloser
	end func()
}

// Read reads the body. It returns its error; after one, the permit is released.
func (b *held) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// upgraded is a connection of which each side can be closed alone: this one may still send after the end of the other.
type upgraded struct{ *held }

// Read reads from the connection. It returns its error; after one that is not the end, the permit is released.
func (u upgraded) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		u.end()
	}
	return n, err
}

// Close closes the body and releases the permit. It returns the body's error.
func (b *held) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// CloseIdleConnections closes those of base, for http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}
