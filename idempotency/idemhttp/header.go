package idemhttp

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// neverStored are the headers of a response that belong to one client, and those that belong to
// one connection or message and are set anew. (Trailer is recorded: it has the names of the
// trailers.)
var neverStored = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Www-Authenticate": true, "Proxy-Authenticate": true,
	"Authorization": true, "Proxy-Authorization": true, "Authentication-Info": true,
	"Proxy-Authentication-Info": true, "Clear-Site-Data": true,

	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Date": true,
}

// digests are digests of a body in its content coding (RFC 9530): they are wrong for another
// coding.
var digests = map[string]bool{"Content-Digest": true, "Repr-Digest": true, "Digest": true, "Content-Md5": true}

// ofBody reports whether a header or trailer describes the body.
func ofBody(name string) bool {
	return digests[name] || slices.Contains([]string{"Content-Encoding", "Content-Type", "Content-Range", "Trailer"}, name)
}

// plain returns the name of a header, or of a trailer that was not announced.
func plain(name string) string {
	return http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))
}

// dropDigests removes digests.
func dropDigests(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return digests[plain(name)] })
}

// stored returns the headers of a response that are recorded: those that the handler has set,
// except for headers that are never recorded. A header that the handler has removed is there
// without a value.
func (c *config) stored(h, before http.Header, omitted bool) http.Header {
	out := http.Header{}
	add := func(name string, values []string) {
		plain := plain(name)
		if !c.never[plain] && plain != c.ReplayedHeader && !(omitted && ofBody(plain)) {
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

// sendable returns the trailers that the client of a request can get: HTTP/1.0 has none.
func sendable(r *http.Request, trailer http.Header) http.Header {
	if !r.ProtoAtLeast(1, 1) {
		return nil
	}
	return trailer
}

// trailers returns the trailers that a handler has set: under the names that it has announced,
// and those with net/http's prefix.
func trailers(h, announced http.Header) http.Header {
	out := http.Header{}
	add := func(name string, values []string) {
		if len(values) > 0 {
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
