package idemhttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// bodyOmitted is the header of a replay without the body, which was not recorded.
const bodyOmitted = "Idempotency-Body-Omitted"

// replay sends a recorded response.
func (c *config) replay(w http.ResponseWriter, r *http.Request, res *Response) {
	h := w.Header()
	maps.Copy(h, res.Header)
	h.Set(c.ReplayedHeader, "true")
	body, trailer := res.Body, sendable(r, res.Trailer)
	switch {
	case res.Omitted:
		h.Set(bodyOmitted, "true")
		h.Del("Content-Length")
		w.WriteHeader(res.Status)
		return
	case res.Status != http.StatusPartialContent && gzipped(h) && !takesGzip(r.Header): // a range is one of the compressed body
		if plain, ok := unpack(body, 8*int64(c.shared.Store.Options().MaxResult)); ok {
			body = plain
			h.Del("Content-Encoding")
			dropDigests(h)
			dropDigests(trailer)
			if _, typed := h["Content-Type"]; !typed {
				h["Content-Type"] = nil // keeps net/http from guessing one, as the coding did
			}
			if tag := h.Get("Etag"); strings.HasPrefix(tag, `"`) {
				h.Set("Etag", "W/"+tag) // it is another representation
			}
		}
	}
	h.Del("Content-Length")
	if length := res.Header["Content-Length"]; empty(r, res.Status) && len(res.Body) == len(body) && len(length) > 0 {
		h["Content-Length"] = length
	}
	measure(h, r, res.Status, body, trailer)
	w.WriteHeader(res.Status)
	if len(body) > 0 && !bodyless(res.Status) {
		_, _ = w.Write(body)
	}
	unsize(w, r, res.Status, trailer)
	maps.Copy(h, trailer)
}

// takesGzip reports whether a client accepts gzip; without Accept-Encoding it does.
func takesGzip(h http.Header) bool {
	lines, said := h["Accept-Encoding"]
	if !said {
		return true
	}
	any := false
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(part, ";")
			takes := true
			if _, q, ok := strings.Cut(params, "="); ok {
				weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
				takes = err != nil || weight > 0
			}
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				return takes
			case "*":
				any = takes
			}
		}
	}
	return any
}

// unpack decompresses gzip. It returns false if the result would be larger than max.
func unpack(packed []byte, max int64) ([]byte, bool) { return unpackBy(new(gzip.Reader), packed, max) }

// unpackBy is unpack with a reader that may have been used before: a new one takes 40 KiB.
func unpackBy(z *gzip.Reader, packed []byte, max int64) ([]byte, bool) {
	if err := z.Reset(bytes.NewReader(packed)); err != nil {
		return nil, false
	}
	plain, err := io.ReadAll(io.LimitReader(z, max+1))
	if err != nil || int64(len(plain)) > max {
		return nil, false
	}
	return plain, true
}
