package idemhttp

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// The recorded form is text, with arbitrary bytes in values and body:
//
//	idemhttp 1 201 -
//	h Location: /orders/1
//	n Content-Type
//	t Checksum: abc
//
//	the body
//
// The fourth word is "omitted" or "hijacked" if the response is. A line n is a header without a
// value: the handler keeps net/http from setting it, or has removed the value that was set in
// front of the Middleware. Lines and words that a later release adds are skipped.
const (
	magic        = "idemhttp 1 "
	wordOmitted  = "omitted"
	wordHijacked = "hijacked"
)

// Encode returns the recorded form: the result for idempotency.WasDone when an operator resolves
// a request.
func (res *Response) Encode() []byte {
	var b bytes.Buffer
	b.Grow(256 + len(res.Body))
	word := "-"
	switch {
	case res.Hijacked:
		word = wordHijacked
	case res.Omitted:
		word = wordOmitted
	}
	fmt.Fprintf(&b, "%s%d %s\n", magic, res.Status, word)
	fields(&b, "h ", res.Header)
	fields(&b, "t ", res.Trailer)
	b.WriteByte('\n')
	if !res.Omitted && !res.Hijacked {
		b.Write(res.Body)
	}
	return b.Bytes()
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

// errForm is the error of Decode.
var errForm = errors.New("the recorded result was not made by idemhttp.Response.Encode, or by one of a later release")

// Decode returns the Response of a recorded form, such as the Value of an idempotency.Outcome.
// The body shares memory with stored. It returns an error unless stored was made by Encode, in a
// version of the form that this release knows.
func Decode(stored []byte) (*Response, error) {
	end := bytes.Index(stored, []byte("\n\n"))
	if end < 0 {
		return nil, errForm
	}
	first, lines, _ := strings.Cut(string(stored[:end+1]), "\n")
	rest, is := strings.CutPrefix(first, magic)
	code, rest, more := strings.Cut(rest, " ")
	word, _, _ := strings.Cut(rest, " ")
	if !is || !more || word == "" {
		return nil, errForm
	}
	res := &Response{Header: http.Header{}, Omitted: word == wordOmitted, Hijacked: word == wordHijacked}
	var err error
	if res.Status, err = strconv.Atoi(code); err != nil || !final(res.Status) && !res.Hijacked {
		return nil, errForm
	}
	for text := range strings.Lines(lines) {
		kind, field, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		name, value, _ := strings.Cut(field, ": ")
		if name == "" {
			return nil, errForm
		}
		switch kind {
		case "h":
			res.Header[name] = append(res.Header[name], value)
		case "n":
			res.Header[name] = nil
		case "t":
			if res.Trailer == nil {
				res.Trailer = http.Header{}
			}
			res.Trailer[name] = append(res.Trailer[name], value)
		}
	}
	res.Body = stored[end+2:]
	return res, nil
}

// final reports whether a status ends a response, as 1xx do not.
func final(status int) bool {
	return status == http.StatusSwitchingProtocols || status >= 200 && status <= 999
}

// bodyless reports whether a response with that status has no body.
func bodyless(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// empty reports whether the response to a request has no body. A Content-Length that the handler
// has set is then the length of a body that is not sent, and is kept like any other header.
func empty(r *http.Request, status int) bool {
	return r.Method == http.MethodHead || bodyless(status)
}
