package idemhttp

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
)

// content is what counts of a body: its bytes, or a hash of what they say.
type content struct {
	form  form
	bytes []byte
}

// form says what the bytes of a content are. It is a part of stored fingerprints.
type form byte

const (
	formBytes     form = iota // the body
	formJSON                  // the hash of its JSON
	formMultipart             // the hash of its parts
	formGzip                  // the hash of the content that was compressed
	formMessages              // the hash of the messages of a call of RPC
	formFields                // the fields of a form
)

// sum returns the hash of a content, and of the head before it.
func (c content) sum(head []byte) (sum idempotency.Fingerprint) {
	h := sha256.New()
	h.Write(append(head, byte(c.form)))
	h.Write(c.bytes)
	h.Sum(sum[:0])
	return sum
}

// contentOf returns what counts of a body: see Content.
func contentOf(h http.Header, m media, body []byte) content {
	if c, ok := unpacked(h, m, body); ok {
		return c
	}
	if m.isJSON() {
		if c, err := jsonOf(body); err == nil {
			return c
		}
	}
	if m.isForm() {
		if c, err := fieldsOfForm(body); err == nil {
			return c
		}
	}
	return exactOf(m, body, byText)
}

// exactOf returns what counts of a body: see Exact.
func exactOf(m media, body []byte, json inJSON) content {
	if m.isMultipart() {
		if sum, err := (parts{mostParts, json}).sum(m, bytes.NewReader(body), 0); err == nil {
			return content{formMultipart, sum}
		}
	}
	return content{formBytes, body}
}

// jsonOf returns the content of JSON, and the error of a text that is none, or cannot be compared.
func jsonOf(body []byte) (content, error) {
	j, err := idempotency.NewJSON(body)
	if err != nil {
		return content{}, err
	}
	sum := j.Fingerprint()
	return content{formJSON, sum[:]}, nil
}

// fieldsOfForm returns the content of a form: its fields by name, those of one name in their order.
func fieldsOfForm(body []byte) (content, error) {
	fields, err := url.ParseQuery(string(body))
	if err != nil {
		return content{}, err
	}
	return content{formFields, []byte(fields.Encode())}, nil
}

// mostUnpacked is the size, in bytes, up to which a compressed body is compared by its content: a
// client could send a small body that takes long to decompress.
const mostUnpacked = 1 << 20

// unpacked returns what counts of a body that was compressed. It returns false if it was not, was
// not only with gzip, or is larger than mostUnpacked.
func unpacked(h http.Header, m media, body []byte) (content, bool) {
	if !gzipped(h) {
		return content{}, false
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return content{}, false // a handler in front has decompressed it
	}
	plain, err := io.ReadAll(io.LimitReader(z, mostUnpacked+1))
	if err != nil || len(plain) > mostUnpacked {
		return content{}, false
	}
	sum := contentOf(nil, m, plain).sum(nil)
	return content{formGzip, sum[:]}, true
}

// gzipped reports whether a body is compressed by gzip and by nothing else.
func gzipped(h http.Header) bool {
	coding := h.Values("Content-Encoding")
	return len(coding) == 1 && strings.EqualFold(coding[0], "gzip")
}

// media is the media type of a body.
type media struct {
	name   string // without its parameters
	params map[string]string
}

// mediaOf returns the media type of a body. If its parameters cannot be parsed, it has none.
func mediaOf(h http.Header) media {
	if name, params, err := mime.ParseMediaType(h.Get("Content-Type")); err == nil {
		return media{name, params}
	}
	return media{name: mediaType(h)}
}

// isJSON reports whether a media type is JSON (RFC 6839).
func (m media) isJSON() bool {
	return m.name == "application/json" || strings.HasSuffix(m.name, "+json")
}

// isForm reports whether a media type is that of a form in one part.
func (m media) isForm() bool { return m.name == "application/x-www-form-urlencoded" }

// isMultipart reports whether a media type is one of parts with a boundary between them.
func (m media) isMultipart() bool {
	return strings.HasPrefix(m.name, "multipart/")
}
