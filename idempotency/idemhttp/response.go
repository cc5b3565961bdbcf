package idemhttp

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/etcdkit/etcdkit/internal/forms"
)

// Response is a recorded response.
type Response struct {
	Status  int
	Header  http.Header
	Trailer http.Header // under the names that the handler has set
	Body    []byte
	// Omitted reports that the body was not recorded: it was too large, or broke off.
	Omitted bool
	// Hijacked reports that the handler has hijacked the connection: nothing else is known.
	Hijacked bool
}

// Encode returns the recorded form (package internal/forms): the result for idempotency.WasDone when an operator resolves
// a request.
func (res *Response) Encode() []byte {
	var b bytes.Buffer
	b.Grow(256 + len(res.Body))
	word := "-"
	switch {
	case res.Hijacked:
		word = forms.Hijacked
	case res.Omitted:
		word = forms.Omitted
	}
	fmt.Fprintf(&b, "%s%d %s\n", forms.ResponseMagic, res.Status, word)
	fields(&b, "h ", res.Header)
	fields(&b, "t ", res.Trailer)
	b.WriteByte('\n')
	if !res.Omitted && !res.Hijacked {
		b.Write(res.Body)
	}
	return b.Bytes()
}

// Check returns an error for a response that no Middleware records, in words for an operator who has made it: one
// with a status that ends no response, with a header whose name or value HTTP does not have, or with one that belongs
// to one client or one connection, such as Set-Cookie and Content-Length, with a body that its status does not have, or
// with one that is not compressed by gzip although its Content-Encoding says so.
// It returns nil for all others.
func (res *Response) Check() error {
	var codings []string
	for name, values := range res.Header {
		if http.CanonicalHeaderKey(name) == "Content-Encoding" {
			codings = append(codings, values...)
		}
	}
	if err := forms.CheckResponse(res.Status, codings, res.Body); err != nil {
		return err
	}
	for name, values := range res.Header {
		if !token(name) {
			return fmt.Errorf("%q is no name of a header", name)
		}
		if neverStored[http.CanonicalHeaderKey(name)] {
			return fmt.Errorf("%s is never recorded: it belongs to one client, one connection or one message", name)
		}
		if slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, unicode.IsControl) }) {
			return fmt.Errorf("the value of %s has control characters", name)
		}
	}
	return nil
}

// oneLine replaces line breaks in values as net/http does.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

func fields(b *bytes.Buffer, kind string, h http.Header) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if strings.ContainsAny(name, "\r\n ") || name == "" {
			continue // net/http does not send it
		}
		if len(h[name]) == 0 && kind == "h " {
			b.WriteString("n " + name + "\n")
		}
		for _, v := range h[name] {
			b.WriteString(kind + name + ": ")
			b.WriteString(oneLine.Replace(v))
			b.WriteByte('\n')
		}
	}
}

// Decode returns the Response of a recorded form, such as the Value of an idempotency.Outcome.
// The body shares memory with stored. It returns an error unless stored was made by Encode, in a
// version of the form that this release knows.
func Decode(stored []byte) (*Response, error) {
	r, ok := forms.ParseResponse(stored)
	if !ok {
		return nil, forms.ErrHTTP
	}
	res := &Response{Status: r.Status, Header: http.Header{}, Omitted: r.Word == forms.Omitted, Hijacked: r.Word == forms.Hijacked, Body: r.Body}
	for _, f := range r.Fields {
		switch f.Kind {
		case "h":
			res.Header[f.Name] = append(res.Header[f.Name], f.Value)
		case "n":
			res.Header[f.Name] = nil
		case "t":
			if res.Trailer == nil {
				res.Trailer = http.Header{}
			}
			res.Trailer[f.Name] = append(res.Trailer[f.Name], f.Value)
		}
	}
	return res, nil
}

// final reports whether a status ends a response, as 1xx do not.
func final(status int) bool { return forms.Final(status) }

// bodyless reports whether a response with that status has no body.
func bodyless(status int) bool { return forms.Bodyless(status) }

// empty reports whether the response to a request has no body. A Content-Length that the handler
// has set is then the length of a body that is not sent, and is kept like any other header.
func empty(r *http.Request, status int) bool {
	return r.Method == http.MethodHead || bodyless(status)
}
