package idemhttp

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
)

// mostParts is the number of parts up to which those of a client are compared: as many as net/http reads
// by default.
const mostParts = 1000

// mostWithin is how deep parts are compared that have parts themselves.
const mostWithin = 8

// partsOf returns the hash of the parts of a multipart body, without the boundary between them. It
// returns false if the body is not what its type says, or has more parts than most. A part that has parts
// itself is compared by them, since its encoder chooses a boundary, too; it is within as many others.
func partsOf(m media, body io.Reader, most, within int) (sum []byte, ok bool) {
	type part struct {
		name string
		sum  [sha256.Size]byte
	}
	if m.params["boundary"] == "" || within > mostWithin {
		return nil, false
	}
	var parts []part
	h := sha256.New()
	for r := multipart.NewReader(body, m.params["boundary"]); ; {
		p, err := r.NextRawPart()
		if err == io.EOF { // not a wrapped one, of a body that ends without its last boundary
			break
		}
		if err != nil || len(parts) == most {
			return nil, false
		}
		h.Reset()
		if !writePart(h, p, most, within) {
			return nil, false
		}
		next := part{name: p.FormName()}
		h.Sum(next.sum[:0])
		parts = append(parts, next)
	}
	if m.name == "multipart/form-data" {
		slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	}
	h.Reset()
	for _, p := range parts {
		h.Write(p.sum[:])
	}
	return h.Sum(nil), true
}

// writePart writes a part: its headers and its content, or the hash of its own parts. It returns false where
// partsOf does.
func writePart(w io.Writer, p *multipart.Part, most, within int) bool {
	m := mediaOf(http.Header(p.Header))
	if !m.isMultipart() {
		writePartHeader(w, p.Header)
		_, _ = io.WriteString(w, "\n")
		_, err := io.Copy(w, p)
		return err == nil
	}
	sum, ok := partsOf(m, p, most, within+1)
	delete(m.params, "boundary")
	p.Header.Set("Content-Type", mime.FormatMediaType(m.name, m.params))
	writePartHeader(w, p.Header)
	_, _ = fmt.Fprintf(w, "parts\n%s", sum)
	return ok
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
