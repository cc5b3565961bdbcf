package idemhttp

import (
	"bytes"
	"io"
	"net/http"
)

// view returns a request for a callback of the options: with the body to read, and with nothing of what the callback
// parses reaching the handler, or another callback. The body is not copied.
func view(r *http.Request, body []byte) *http.Request {
	r2 := r.WithContext(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		r2.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r2
}

// show calls a callback with a view of a request, and removes the files of a form that it has parsed.
func show[T any](r *http.Request, body []byte, callback func(*http.Request) T) T {
	r2 := view(r, body)
	defer func() {
		if r2.MultipartForm != nil {
			_ = r2.MultipartForm.RemoveAll()
		}
	}()
	return callback(r2)
}

// report calls ReportError.
func report(c *config, r *http.Request, body []byte, err error) {
	show(r, body, func(r *http.Request) any { c.ReportError(r, err); return nil })
}
