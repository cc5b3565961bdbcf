package idemhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Exact is a Payload of method, path, query, media type, content coding and the bytes of the
// body. The path is the one that the client has sent, together with the one that a handler in
// front of the Middleware has made of it. The order of the query's names does not count, nor do
// a media type's parameters, such as a boundary. Its error is always nil.
func Exact(r *http.Request, body []byte) (any, error) {
	return slices.Concat([]byte(describe(r)), body), nil
}

// CanonicalJSON is a Payload like Exact, except that the order of members and white space in the
// body do not count. It returns an error if the body is neither empty nor JSON, or is JSON that
// cannot be compared: see idempotency.CheckJSON.
func CanonicalJSON(r *http.Request, body []byte) (any, error) {
	head, err := json.Marshal(describe(r))
	if err != nil {
		return nil, err
	}
	all := make([]byte, 0, len(body)+len(head)+32)
	all = append(append(all, `{"Head":`...), head...)
	if len(bytes.TrimSpace(body)) > 0 {
		if !json.Valid(body) { // alone: it must not end the object around it
			return nil, errors.New("the body is not JSON")
		}
		all = append(append(all, `,"Body":`...), body...)
	}
	p, err := idempotency.NewJSON(append(all, '}'))
	if err != nil {
		return nil, fmt.Errorf("the body is %w", err)
	}
	return p, nil
}

// describe returns all that Exact compares but the body, as one text.
func describe(r *http.Request) string {
	query := r.URL.RawQuery
	if query != "" {
		if values, err := url.ParseQuery(query); err == nil {
			query = values.Encode()
		}
	}
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err == nil {
		kind = media
	}
	b := make([]byte, 0, 128)
	parts := []string{r.Method, route(r), query, kind}
	for _, s := range append(parts, r.Header.Values("Content-Encoding")...) {
		b = append(strconv.AppendQuote(b, s), ' ')
	}
	return string(append(b, '\n'))
}

// sent returns the path that the client has sent: a handler in front of the Middleware, such as
// http.StripPrefix, may have changed r.URL.
func sent(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// route returns the path that the client has sent, together with the one in r.URL if a handler
// in front of the Middleware has changed it.
func route(r *http.Request) string {
	path, here := sent(r), r.URL.EscapedPath()
	if path == here {
		return here
	}
	return path + " " + here
}

var (
	errTooLarge = errors.New("the body is too large")
	errConsumed = errors.New("a handler in front of idemhttp.Middleware has read the body")
)

// read returns the body of a request. It returns errTooLarge for more than max bytes,
// errConsumed, or the error of the client's connection.
func read(r *http.Request, max int64) ([]byte, error) {
	if r.ContentLength > max {
		return nil, errTooLarge
	}
	if r.PostForm != nil || r.MultipartForm != nil {
		return nil, errConsumed
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(io.LimitReader(r.Body, max+1)); err != nil {
		return nil, err
	}
	switch n := int64(buf.Len()); {
	case n > max:
		return nil, errTooLarge
	case n < r.ContentLength && !decoded(r, n):
		return nil, errConsumed
	}
	return buf.Bytes(), nil
}

// decoded reports whether n bytes, fewer than the Content-Length that the client has sent, can be
// a whole body that a handler in front of the Middleware has decoded, rather than the rest of one
// that it has read. The headers still have the coding then, or neither the coding nor the length.
// (Of a body that was read, nothing is left.)
func decoded(r *http.Request, n int64) bool {
	_, sized := r.Header["Content-Length"]
	return n > 0 && (!sized || r.Header.Get("Content-Encoding") != "")
}

// again is a copy of a body, and the original, which is closed with it.
type again struct {
	*bytes.Reader
	io.Closer
}

// restored returns a request with a copy of its body, and with ctx. Length and trailers stay.
func restored(r *http.Request, ctx context.Context, body []byte) *http.Request {
	r2 := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r2.Body = again{bytes.NewReader(body), r.Body}
	}
	return r2
}

// handle calls a handler with a restored request, and removes the files of a form that the
// handler has parsed: net/http does so only for the original request.
func handle(next http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		if r.MultipartForm != nil {
			_ = r.MultipartForm.RemoveAll()
		}
	}()
	next.ServeHTTP(w, r)
}
