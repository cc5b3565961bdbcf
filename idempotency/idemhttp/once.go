package idemhttp

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
)

// repeatable are the headers for which net/http's Transport repeats a request by itself, if a connection that it has
// used before breaks and no answer has come: the service may have executed the request.
var repeatable = []string{"Idempotency-Key", "X-Idempotency-Key"}

// send sends a request, within an attempt under Refuse so that net/http does not repeat it.
func send(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	if !idempotency.Refuses(r.Context()) || !repeats(r) {
		return base.RoundTrip(r)
	}
	resp, err := base.RoundTrip(once(base, r))
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// repeats reports whether net/http repeats a request because of a header.
func repeats(r *http.Request) bool {
	return !slices.Contains([]string{"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, r.Method) &&
		slices.ContainsFunc(repeatable, func(name string) bool { _, has := r.Header[name]; return has })
}

// once returns a copy of a request that net/http does not repeat. Its Transport looks for the names of the headers
// as they are written in the map, so there they are in lower case, which is the same header for the service; then it
// still repeats what it has not sent. Another RoundTripper may look for the header: there, the body cannot be read
// again, and a request without one has an empty one.
func once(base http.RoundTripper, r *http.Request) *http.Request {
	r2 := r.WithContext(r.Context())
	if _, direct := base.(*http.Transport); direct {
		r2.Header = r.Header.Clone()
		for _, name := range repeatable {
			if values, has := r2.Header[name]; has {
				delete(r2.Header, name)
				r2.Header[strings.ToLower(name)] = values
			}
		}
		return r2
	}
	r2.GetBody = nil
	if !hasBody(r) {
		r2.Body = io.NopCloser(strings.NewReader(""))
	}
	return r2
}
