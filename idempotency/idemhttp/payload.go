package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// Content is the default of Options.Payload: method, path, query, media type, content coding, and
// what the body says, however it was encoded. Its error is always nil.
//
// Of a body in JSON (application/json and types that end in +json), neither the order of members, nor
// white space, nor the way in which characters are escaped counts; numbers count as they are written.
// JSON that cannot be compared (see idempotency.CheckJSON) is compared byte by byte. Of a multipart
// body of up to 1,000 parts, the parts count, each with its headers, and not the boundary, nor the
// boundaries of parts that have parts themselves; a part in JSON is compared as JSON; in a form
// (multipart/form-data), only the order of parts with one name counts. Of a form in one part
// (application/x-www-form-urlencoded), neither the order of fields with different names counts nor how
// they are percent-encoded. All other bodies are compared byte by byte. A body that was compressed
// with gzip is compared by what it holds, up to 1 MiB.
//
// Of a call of gRPC, gRPC-Web or Connect, the messages count, as in package idemgrpc: neither the order of
// a map's entries nor how a message was encoded, in protobuf or JSON, compressed by gzip (up to 1 MiB in
// all) or not. The method has to be in protobuf's registry, as those of generated code are. The body of
// another call, or with messages that are not of the method's type, is compared as above.
//
// The path and the query are those that the client has sent: a handler in front of the Middleware,
// such as http.StripPrefix, changes nothing. Paths are the same if their segments are, percent-encoded
// or not, as for http.ServeMux: /~ada and /%7Eada are, /a/b and /a%2Fb are not. The order of the
// query's names does not count, nor do the media type's parameters. No other header counts, such as If-Match,
// If-None-Match or Range: a request under another condition needs another key, or gets a replay of the 412 or 304.
func Content(r *http.Request, body []byte) (any, error) {
	m := mediaOf(r.Header)
	if callOf(r, m.name) != plainHTTP {
		if c, err := messagesOf(r, m, sent(r).Path, body, mostUnpacked); err == nil || errors.Is(err, rpc.ErrByBytes) {
			return fingerprint(r, m, c), nil
		}
	}
	return fingerprint(r, m, contentOf(r.Header, m, body)), nil
}

// Exact is a Payload like Content, except that all bodies but multipart ones are compared byte by
// byte, those of calls of RPC too, and so is JSON in parts. Its error is always nil.
func Exact(r *http.Request, body []byte) (any, error) {
	m := mediaOf(r.Header)
	return fingerprint(r, m, exactOf(m, body, byBytes)), nil
}

// CanonicalJSON is a Payload like Content for bodies that are JSON, whatever their media type is. It
// returns an error if the body is neither empty nor JSON, or is JSON that cannot be compared: see
// idempotency.CheckJSON.
func CanonicalJSON(r *http.Request, body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return fingerprint(r, mediaOf(r.Header), content{}), nil
	}
	c, err := jsonOf(body)
	if err != nil {
		return nil, fmt.Errorf("the body is %w", err)
	}
	return fingerprint(r, mediaOf(r.Header), c), nil
}

// fingerprint returns the hash of a request: of its body, and of all else that the payloads of this
// package compare.
func fingerprint(r *http.Request, m media, body content) idempotency.Fingerprint {
	u := sent(r)
	b := make([]byte, 0, 256)
	for _, s := range [...]string{r.Method, pathOf(u), queryOf(u), m.name} {
		b = append(strconv.AppendQuote(b, s), ' ')
	}
	if body.form != formMessages { // a client of Connect compresses a message from a size on, which its encoding has
		for _, s := range r.Header.Values("Content-Encoding") {
			b = append(strconv.AppendQuote(b, s), ' ')
		}
	}
	return body.sum(append(b, '\n'))
}

var (
	errTooLarge = errors.New("the body is too large")
	errConsumed = errors.New("a handler in front of idemhttp.Middleware has read the body; put it behind, or let it put the bytes that it has read back into Request.Body")
	errEmpty    = errors.New("the body is empty, as no body of its Content-Type is, and the request has no Content-Length; a request without a body has to have a Content-Length of 0")
	errParsed   = fmt.Errorf("%w: Request.ParseForm, FormValue and the like read the body of a form", errConsumed)
)

// parsed reports whether net/http has read the body of a form. Of any other body ParseForm reads
// nothing, and sets PostForm nevertheless.
func parsed(r *http.Request) bool {
	if r.MultipartForm != nil {
		return true
	}
	return r.PostForm != nil && mediaType(r.Header) == "application/x-www-form-urlencoded" &&
		slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, r.Method)
}

// read returns the body of a request. It returns errTooLarge for more than max bytes,
// errConsumed, or the error of the client's connection.
func read(r *http.Request, max int64) ([]byte, error) {
	if r.ContentLength > max {
		return nil, errTooLarge
	}
	if parsed(r) {
		return nil, errParsed
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	buf := bufferFor(r.ContentLength)
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

// brokeOff reports whether err is that of a connection by which the body of r did not arrive, so that the same request can
// succeed. Another error is about what has arrived, and so is the unexpected end of a body that is decoded.
func brokeOff(r *http.Request, err error) bool {
	_, network := errors.AsType[net.Error](err) // also of a deadline
	return network || errors.Is(err, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF) && !coded(r)
}

// unlessEmpty returns a Payload that refuses, and reports, an empty body without a Content-Length if no body of its type is
// empty: either a handler in front has read it, or the client has sent none. Of another type, the client may have sent it so.
func unlessEmpty(payload func(*http.Request, []byte) (any, error), report func(*http.Request, error)) func(*http.Request, []byte) (any, error) {
	return func(r *http.Request, body []byte) (any, error) {
		if len(body) == 0 && hasBody(r) && r.ContentLength < 0 && neverEmpty(mediaOf(r.Header)) {
			report(r, fmt.Errorf("%w; or %w", errEmpty, errConsumed))
			return nil, errEmpty
		}
		return payload(r, body)
	}
}

// neverEmpty reports whether no body of a media type is empty.
func neverEmpty(m media) bool { return named(m.name) == plainHTTP && (m.isJSON() || m.isMultipart()) }

// decoded reports whether n bytes, fewer than the Content-Length that the client has sent, can be
// a whole body that a handler in front of the Middleware has decoded, rather than the rest of one
// that it has read. (Of a body that was read, nothing is left.)
func decoded(r *http.Request, n int64) bool { return n > 0 && coded(r) }

// coded reports whether a handler in front of the Middleware may decode the body: the headers still have the coding then, or
// neither the coding nor the length.
func coded(r *http.Request) bool {
	_, sized := r.Header["Content-Length"]
	return r.Header.Get("Content-Encoding") != "" || !sized && len(r.TransferEncoding) == 0
}

// again is a copy of a body, and the original, which is closed with it.
type again struct {
	*bytes.Reader
	io.Closer
}

// restored returns a request with a copy of its body, and with ctx. Length and trailers stay.
func restored(r *http.Request, ctx context.Context, body []byte) *http.Request { //nolint:revive // as WithContext
	r2 := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r2.Body = again{bytes.NewReader(body), r.Body}
	}
	return r2
}

// handle calls a handler with a restored request, and removes the files of a form that the
// handler has parsed: net/http does so only for the original request. That shows the pattern by which an http.ServeMux
// behind the Middleware has matched: a log in front reads it. One that a mux in front has set stays, since Options.Op may
// know the request by it.
func handle(next http.Handler, w http.ResponseWriter, r, original *http.Request) {
	defer func() {
		if original.Pattern == "" {
			original.Pattern = r.Pattern
		}
		if r.MultipartForm != nil {
			_ = r.MultipartForm.RemoveAll()
		}
	}()
	next.ServeHTTP(w, r)
}
