package idemhttp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// mostParts is the number of parts up to which those of a client are compared: as many as net/http reads
// by default.
const mostParts = 1000

// mostWithin is how deep parts are compared that have parts themselves.
const mostWithin = 8

// inJSON says how parts in JSON are compared.
type inJSON int

const (
	byBytes    inJSON = iota // byte by byte
	byText                   // as JSON, and byte by byte if they cannot be compared
	byTextOnly               // as JSON, and not at all if they cannot be compared
)

// parts says how the parts of a multipart body are compared.
type parts struct {
	most int
	json inJSON
}

// errNoParts is the error of a body that is not what its type says, or has more parts than are compared.
var errNoParts = errors.New("the body has not the parts that its type promises, or too many")

// sum returns the hash of the parts of a body, without the boundary between them. A part that has parts
// itself is compared by them, since its encoder chooses a boundary, too; it is within as many others.
func (how parts) sum(m media, body io.Reader, within int) ([]byte, error) {
	type part struct {
		name string
		sum  [sha256.Size]byte
	}
	if m.params["boundary"] == "" || within > mostWithin {
		return nil, errNoParts
	}
	var all []part
	h := sha256.New()
	for r := multipart.NewReader(body, m.params["boundary"]); ; {
		p, err := r.NextRawPart()
		if err == io.EOF { // not a wrapped one, of a body that ends without its last boundary
			break
		}
		if err != nil || len(all) == how.most {
			return nil, errNoParts
		}
		h.Reset()
		if err := how.write(h, p, within); err != nil {
			return nil, err
		}
		next := part{name: p.FormName()}
		h.Sum(next.sum[:0])
		all = append(all, next)
	}
	if m.name == "multipart/form-data" {
		slices.SortStableFunc(all, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	}
	h.Reset()
	for _, p := range all {
		h.Write(p.sum[:])
	}
	return h.Sum(nil), nil
}

// write writes a part: its headers and its content, or the hash of its own parts or of its JSON.
func (how parts) write(w io.Writer, p *multipart.Part, within int) error {
	m := mediaOf(http.Header(p.Header))
	switch {
	case m.isMultipart():
		sum, err := how.sum(m, p, within+1)
		delete(m.params, "boundary")
		p.Header.Set("Content-Type", mime.FormatMediaType(m.name, m.params))
		writePartHeader(w, p.Header)
		_, _ = fmt.Fprintf(w, "parts\n%s", sum)
		return err
	case how.json != byBytes && m.isJSON() && unencoded(p.Header):
		return how.writeJSON(w, p)
	}
	writePartHeader(w, p.Header)
	_, _ = io.WriteString(w, "\n")
	if _, err := io.Copy(w, p); err != nil {
		return errNoParts
	}
	return nil
}

// writeJSON writes a part in JSON.
func (how parts) writeJSON(w io.Writer, p *multipart.Part) error {
	writePartHeader(w, p.Header)
	text, err := io.ReadAll(io.LimitReader(p, mostCompared+1))
	if err != nil {
		return errNoParts
	}
	c, err := content{}, error(nil)
	if len(text) > mostCompared {
		err = fmt.Errorf("it has more than %d bytes", mostCompared)
	} else {
		c, err = jsonOf(text)
	}
	switch {
	case err == nil:
		_, _ = fmt.Fprintf(w, "json\n%s", c.bytes)
	case how.json == byTextOnly:
		return fmt.Errorf("the JSON in its part %q cannot be compared: %w", p.FormName(), err)
	default:
		_, _ = io.WriteString(w, "\n")
		if _, err := io.Copy(w, io.MultiReader(bytes.NewReader(text), p)); err != nil {
			return errNoParts
		}
	}
	return nil
}

// unencoded reports whether the content of a part is there as it is.
func unencoded(h textproto.MIMEHeader) bool {
	switch strings.ToLower(h.Get("Content-Transfer-Encoding")) {
	case "", "7bit", "8bit", "binary":
		return h.Get("Content-Encoding") == ""
	}
	return false
}

// writePartHeader writes the headers of a part in one way, without the length that an encoder may
// state.
func writePartHeader(w io.Writer, h textproto.MIMEHeader) {
	names := make([]string, 0, len(h))
	for name := range h {
		if name != "Content-Length" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			if name == "Content-Disposition" || name == "Content-Type" {
				if media, params, err := mime.ParseMediaType(value); err == nil {
					value = cmp.Or(mime.FormatMediaType(media, params), value)
				}
			}
			fmt.Fprintf(w, "%q: %q\n", name, value)
		}
	}
}
