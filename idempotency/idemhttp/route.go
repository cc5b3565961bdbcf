package idemhttp

import (
	"net/http"
	"net/url"
	"strings"
)

// sent returns the request's target as the client has sent it. A handler in front of the Middleware,
// such as http.StripPrefix, may have changed r.URL, and the next release may have that handler behind
// the Middleware: the identity of a request depends on neither.
func sent(r *http.Request) *url.URL {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u
	}
	return r.URL
}

// pathOf returns one text for all paths that have the same segments. A slash that is percent-encoded
// is a part of its segment. Segments that are empty, or dots, stay: some routers resolve them, and
// some do not. net/http sends an Opaque in place of a path.
func pathOf(u *url.URL) string {
	if u.Opaque != "" {
		return u.Opaque
	}
	path := u.EscapedPath()
	if !strings.ContainsFunc(path, func(c rune) bool { return !unreserved(c) && c != '/' }) {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = url.PathEscape(plain)
		}
	}
	return strings.Join(segments, "/")
}

// unreserved reports whether a character of a path is written in one way only, after pathOf (RFC 3986,
// 2.3).
func unreserved(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._~", c)
}

// queryOf returns one text for all queries that have the same values in the same order for each
// name.
func queryOf(u *url.URL) string {
	if u.RawQuery != "" {
		if values, err := url.ParseQuery(u.RawQuery); err == nil {
			return values.Encode()
		}
	}
	return u.RawQuery
}

// hostOf returns a host in lower case, without a port that the scheme implies.
func hostOf(scheme, host string) string {
	host = strings.ToLower(host)
	switch scheme {
	case "http":
		return strings.TrimSuffix(host, ":80")
	case "https":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}
