package forms

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"strings"
)

// Response is the recorded form of a response. It is text, with arbitrary bytes in values and body:
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
type Response struct {
	Status int
	Word   string
	Fields []Field
	Body   []byte
}

// Field is one line of a Response.
type Field struct{ Kind, Name, Value string }

// The first words of a Response, and what its fourth word may be.
const (
	ResponseMagic = "idemhttp 1 "
	Omitted       = "omitted"
	Hijacked      = "hijacked"
)

// ParseResponse reads a Response. Its Body is part of stored.
func ParseResponse(stored []byte) (r Response, ok bool) {
	end := bytes.Index(stored, []byte("\n\n"))
	if end < 0 {
		return r, false
	}
	first, lines, _ := strings.Cut(string(stored[:end+1]), "\n")
	rest, is := strings.CutPrefix(first, ResponseMagic)
	code, rest, more := strings.Cut(rest, " ")
	word, _, _ := strings.Cut(rest, " ")
	if !is || !more || word == "" {
		return r, false
	}
	r.Word = word
	var err error
	if r.Status, err = strconv.Atoi(code); err != nil || !Final(r.Status) && word != Hijacked {
		return r, false
	}
	r.Fields = make([]Field, 0, strings.Count(lines, "\n"))
	for text := range strings.Lines(lines) {
		kind, field, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		name, value, _ := strings.Cut(field, ": ")
		if name == "" {
			return r, false
		}
		r.Fields = append(r.Fields, Field{kind, name, value})
	}
	r.Body = stored[end+2:]
	return r, true
}

// Statuses without a body. (Package net/http is not imported here: idempotency has no HTTP.)
const (
	switching   = 101
	noContent   = 204
	notModified = 304
)

// check returns an error for a response that a Middleware would send, and that no client could read.
func (r Response) check() error {
	if r.Word == Hijacked || r.Word == Omitted {
		return nil // the one is not sent, the other has no body
	}
	var codings []string
	for _, f := range r.Fields {
		if f.Kind == "h" && textproto.CanonicalMIMEHeaderKey(f.Name) == "Content-Encoding" {
			codings = append(codings, f.Value)
		}
	}
	return CheckResponse(r.Status, codings, r.Body)
}

// CheckResponse returns an error for a response that no client could read: one with a status that ends no response, a
// body that its status does not have, or one that is not compressed by gzip although its only Content-Encoding says
// so. Other codings are not read.
func CheckResponse(status int, codings []string, body []byte) error {
	if !Final(status) || status == switching {
		return fmt.Errorf("the status %d ends no response; those from 200 to 999 do", status)
	}
	if len(body) == 0 {
		return nil
	}
	if Bodyless(status) {
		return fmt.Errorf("a response with the status %d has no body", status)
	}
	if len(codings) != 1 || !strings.EqualFold(codings[0], "gzip") && !strings.EqualFold(codings[0], "x-gzip") {
		return nil
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		_, err = io.Copy(io.Discard, z)
	}
	if err != nil {
		return fmt.Errorf("its Content-Encoding is %s, and its body is not compressed by gzip: %w", codings[0], err)
	}
	return nil
}

// Bodyless reports whether a response with that status has no body.
func Bodyless(status int) bool {
	return status < 200 || status == noContent || status == notModified
}

// Final reports whether a status of HTTP ends a response, as 1xx do not.
func Final(status int) bool { return status == switching || status >= 200 && status <= 999 }

// Header reads headers that an operator has written, each as 'Name: value'. It returns an error for a line of another
// form: with an empty one, as of a variable that is not set, or one that continues another, headers would be lost.
func Header(lines []string) (map[string][]string, error) {
	header := map[string][]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.TrimSpace(name) != name {
			return nil, fmt.Errorf("%q is not in the form 'Name: value'", line)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		header[name] = append(header[name], strings.TrimSpace(value))
	}
	return header, nil
}
