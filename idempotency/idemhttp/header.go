package idemhttp

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// neverStored are the headers of a response that belong to one client, and those that belong
// to one connection or message and are made anew. (Trailer stays: it tells the names of
// those that follow.)
var neverStored = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Www-Authenticate": true, "Proxy-Authenticate": true,
	"Authorization": true, "Proxy-Authorization": true, "Authentication-Info": true,
	"Proxy-Authentication-Info": true, "Clear-Site-Data": true,

	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Date": true,
}

// digests are those that a body has with its coding (RFC 9530): of another form of it they are wrong.
var digests = map[string]bool{"Content-Digest": true, "Repr-Digest": true, "Digest": true, "Content-Md5": true}

// ofBody tells whether a header or trailer describes a body which is not kept.
func ofBody(name string) bool {
	return digests[name] || slices.Contains([]string{"Content-Encoding", "Content-Type", "Content-Range", "Trailer"}, name)
}

// plain is the name of a header, or of a trailer that nobody has announced.
func plain(name string) string {
	return http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))
}

// dropDigests removes them.
func dropDigests(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return digests[plain(name)] })
}

// stored returns what is recorded of a response's headers: what differs from those that
// were there before the handler, and is nobody's own. What the handler has removed is there
// without a value.
func (c *config) stored(h, before http.Header, omitted bool) http.Header {
	out := http.Header{}
	add := func(name string, values []string) {
		plain := plain(name)
		if !neverStored[plain] && !c.never[plain] && plain != c.ReplayedHeader && !(omitted && ofBody(plain)) {
			out[name] = values
		}
	}
	for name, values := range h {
		if old, ok := before[name]; !ok || !slices.Equal(old, values) {
			add(name, values)
		}
	}
	for name := range before {
		if _, ok := h[name]; !ok {
			add(name, nil)
		}
	}
	return out
}

// trailers returns what a handler has set for after the body: under names that it has
// announced, and those with net/http's prefix.
func trailers(h, announced http.Header) http.Header {
	var out http.Header
	add := func(name string, values []string) {
		if len(values) > 0 {
			if out == nil {
				out = http.Header{}
			}
			out[name] = values
		}
	}
	for _, line := range announced["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			add(name, h[name])
		}
	}
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			add(name, values)
		}
	}
	return out
}
