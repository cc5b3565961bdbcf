package idemhttp

import (
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
)

// mostCompared is the size, in bytes, up to which the JSON and the messages of an outgoing request are
// compared by what they say: they have to be in memory for that.
const mostCompared = 64 << 20

// describeCall describes a request with its body, in the way in which Content compares requests. It
// returns an error if the request cannot be compared with that of another attempt.
func describeCall(r *http.Request) (string, error) {
	u := r.URL
	body, err := describeBody(r)
	if err != nil {
		return "", fmt.Errorf("idemhttp: send %s %s%s within an attempt: the request cannot be compared with that of another attempt, so it has no key: %w; set the key by WithKey with an Attempt.ChildKey", r.Method, u.Host, u.Path, err)
	}
	host := hostOf(u.Scheme, cmp.Or(r.Host, u.Host))
	return fmt.Sprintf("%s %q %s://%s%s?%s %x", strings.ToUpper(r.Method), host, u.Scheme, hostOf(u.Scheme, u.Host), pathOf(u), queryOf(u), body), nil
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// describeBody returns a hash of a request's body. It returns an error for a body that an encoder writes
// in another way each time, and that cannot be compared but by its bytes.
func describeBody(r *http.Request) ([]byte, error) {
	m := mediaOf(r.Header)
	switch {
	case !hasBody(r):
		return nil, nil
	case r.GetBody == nil:
		return nil, errors.New("its body can be read only once (the request has no GetBody)")
	case callOf(r, m.name) != plainHTTP:
		return sumOf(r, func(body io.Reader) ([]byte, error) { return describeMessages(r, m, body) })
	case m.isMultipart():
		return sumOfPlain(r, func(body io.Reader) ([]byte, error) {
			sum, err := parts{math.MaxInt, byTextOnly}.sum(m, body, 0)
			if errors.Is(err, errNoParts) {
				err = fmt.Errorf("its body is no %s", m.name)
			}
			return sum, err
		})
	case m.isJSON():
		return sumOfPlain(r, describeJSON)
	}
	sum := describeBytes
	if m.isForm() {
		sum = describeForm
	} else if !slices.Equal(codingsOf(r.Header), []string{"gzip"}) { // in another coding, its bytes say what it holds
		return sumOf(r, sum)
	}
	return sumOfPlain(r, sum)
}

// describeBytes returns a hash of a body as it is.
func describeBytes(body io.Reader) ([]byte, error) {
	h := sha256.New()
	_, err := io.Copy(h, body)
	return h.Sum(nil), err
}

// describeMessages returns a hash of the messages of a call. Those of a method that is not registered in
// the program are compared only if they are JSON: an encoder of protobuf writes a map in another order
// each time.
func describeMessages(r *http.Request, m media, body io.Reader) ([]byte, error) {
	text, err := readAll(body)
	if err != nil {
		return nil, err
	}
	c, err := messagesOf(r, m, r.URL.Path, text, mostCompared)
	if err == nil {
		return c.bytes, nil
	}
	if m.isJSON() {
		if c, err := jsonOf(text); err == nil {
			return c.bytes, nil
		}
	}
	return nil, err
}

// describeJSON returns a hash of JSON.
func describeJSON(body io.Reader) ([]byte, error) {
	text, err := readAll(body)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, nil
	}
	c, err := jsonOf(text)
	if err != nil {
		return nil, fmt.Errorf("its body is %w", err)
	}
	return c.bytes, nil
}

// describeForm returns a hash of the fields of a form.
func describeForm(body io.Reader) ([]byte, error) {
	text, err := readAll(body)
	if err != nil {
		return nil, err
	}
	c, err := fieldsOfForm(text)
	if err != nil {
		return nil, fmt.Errorf("its body is no form: %w", err)
	}
	sum := sha256.Sum256(c.bytes)
	return sum[:], nil
}

// readAll returns a body of up to mostCompared bytes.
func readAll(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, mostCompared+1))
	if err == nil && len(text) > mostCompared {
		err = fmt.Errorf("the body has more than %d bytes", mostCompared)
	}
	return text, err
}

// sumOf returns what sum returns of a copy of a request's body.
func sumOf(r *http.Request, sum func(io.Reader) ([]byte, error)) ([]byte, error) {
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	b, err := sum(body)
	return b, cmp.Or(err, body.Close())
}

// sumOfPlain is sumOf for what a body says that is compressed by gzip: another release of an encoder
// compresses the same in another way.
func sumOfPlain(r *http.Request, sum func(io.Reader) ([]byte, error)) ([]byte, error) {
	switch codings := codingsOf(r.Header); {
	case len(codings) == 0:
		return sumOf(r, sum)
	case len(codings) > 1 || codings[0] != "gzip":
		return nil, fmt.Errorf("its body is compressed by %s, and only gzip is read", strings.Join(codings, ", then by "))
	}
	return sumOf(r, func(body io.Reader) ([]byte, error) {
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("its body is not compressed by gzip, as its Content-Encoding says: %w", err)
		}
		return sum(z)
	})
}

// codingsOf returns the codings of a body, in lower case and in the order in which they were applied. x-gzip is gzip (RFC 9110).
func codingsOf(h http.Header) []string {
	var codings []string
	for _, values := range h.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(values, ",") {
			if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
				if coding == "x-gzip" {
					coding = "gzip"
				}
				codings = append(codings, coding)
			}
		}
	}
	return codings
}

// rewound returns a request's body from its beginning. A copy was read to describe the request, and the
// copies of some clients, such as connect-go's, are the body itself.
func rewound(r *http.Request) (io.ReadCloser, error) {
	_ = r.Body.Close()
	body, err := r.GetBody()
	if err != nil {
		return nil, fmt.Errorf("idemhttp: send %s %s%s within an attempt: the body cannot be read again: %w", r.Method, r.URL.Host, r.URL.Path, err)
	}
	return body, nil
}
