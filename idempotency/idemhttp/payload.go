package idemhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Exact is a Payload of method, path, query, media type, content coding and the bytes of
// the body. The path is the one that the client has sent, and the one that what stands in
// front has made of it, if that is another. Neither the order of the query's names counts, nor a media type's parameters,
// such as a boundary. Its error is always nil.
func Exact(r *http.Request, body []byte) (any, error) {
	head := describe(r)
	all := make([]byte, 0, len(head)+len(body))
	return append(append(all, head...), body...), nil
}

// CanonicalJSON is a Payload like Exact, but that neither the order of members nor space
// counts in a body of JSON. It returns an error if the body is not empty and no JSON, or is
// some that cannot be compared: see idempotency.CheckJSON.
func CanonicalJSON(r *http.Request, body []byte) (any, error) {
	head, err := json.Marshal(describe(r))
	if err != nil {
		return nil, err
	}
	all := make([]byte, 0, len(body)+len(head)+32)
	all = append(append(all, `{"Head":`...), head...)
	if len(bytes.TrimSpace(body)) > 0 {
		if !json.Valid(body) { // alone: it must not end the object around it
			return nil, errors.New("the body is no JSON")
		}
		all = append(append(all, `,"Body":`...), body...)
	}
	p, err := idempotency.NewJSON(append(all, '}'))
	if err != nil {
		why, _ := strings.CutPrefix(err.Error(), idempotency.ErrInvalid.Error()+": ")
		return nil, errors.New("the body is " + why)
	}
	return p, nil
}

// describe is a request without its body, in one text per request.
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
	for _, s := range []string{r.Method, route(r), query, kind} {
		b = append(strconv.AppendQuote(b, s), ' ')
	}
	for _, s := range r.Header.Values("Content-Encoding") {
		b = append(strconv.AppendQuote(b, s), ' ')
	}
	return string(append(b, '\n'))
}

// sent is the path as the client has sent it: what stands in front, such as
// http.StripPrefix, may have changed r.URL.
func sent(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// route is the path of a request as it tells routes apart: the one that was sent, and the one
// that what stands in front has made of it, if that is another.
func route(r *http.Request) string {
	path, here := sent(r), r.URL.EscapedPath()
	if path == here {
		return here
	}
	return path + " " + here
}

var (
	errTooLarge = errors.New("the body is too large")
	errConsumed = errors.New("something in front of idemhttp.Middleware has read the body")
)

// read reads the body of a request, up to max bytes. It returns errTooLarge, errConsumed,
// or what the client's connection returned.
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

// decoded tells whether n bytes, fewer than the length that the client has declared, can be all of
// a body that something in front has decoded, rather than what it has left. A short body is longer
// with its coding, which the headers still name, or which has gone together with the length. (Nothing
// at all is left where a body was read.)
func decoded(r *http.Request, n int64) bool {
	_, sized := r.Header["Content-Length"]
	return n > 0 && (!sized || r.Header.Get("Content-Encoding") != "")
}

// again is a body that was read, and the original, which is closed with it.
type again struct {
	*bytes.Reader
	io.Closer
}

// restored returns a request with its body, which was read, and another context. Length and
// trailers are as they were.
func restored(r *http.Request, ctx context.Context, body []byte) *http.Request {
	r2 := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r2.Body = again{bytes.NewReader(body), r.Body}
	}
	return r2
}

// handle calls a handler with a restored request, and removes the files of a form that was
// parsed there: net/http does so for the request that it knows, and this is a copy.
func handle(next http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		if r.MultipartForm != nil {
			_ = r.MultipartForm.RemoveAll()
		}
	}()
	next.ServeHTTP(w, r)
}
