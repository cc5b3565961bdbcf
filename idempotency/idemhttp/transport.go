package idemhttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
)

// Transport gives each request of a client's a key, unless it has one. It is an
// http.RoundTripper, safe for concurrent use; its zero value works.
//
// The key is that of the request's context, if WithKey or WithNewKey has put one there: so
// who tries again does it with the same context. Otherwise it is a new one for each
// RoundTrip, which is kept over redirects and over what Base repeats by itself: net/http's
// Transport does that for requests with an Idempotency-Key and a GetBody.
type Transport struct {
	// Base sends the requests. nil means http.DefaultTransport.
	Base http.RoundTripper
	// Methods are those that get a key; empty means POST and PATCH.
	Methods []string
	// Header is the name of the key's header; empty means Idempotency-Key.
	Header string
}

type ctxKey struct{}

// WithKey returns a context whose requests have that key: the request that it is made
// for, and its repetitions.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, ctxKey{}, key)
}

// WithNewKey returns a context whose requests have a new, random key. Make it outside of
// the loop that tries again.
func WithNewKey(ctx context.Context) context.Context { return WithKey(ctx, rand.Text()) }

// KeyOf returns the key that a context has.
func KeyOf(ctx context.Context) (string, bool) {
	key, ok := ctx.Value(ctxKey{}).(string)
	return key, ok
}

// RoundTrip sends a request with its key. It returns an error if that is no key: not 1 to
// 255 printable characters of ASCII; else what Base returns.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, header := t.Base, t.Header
	if base == nil {
		base = http.DefaultTransport
	}
	if header == "" {
		header = "Idempotency-Key"
	}
	wanted := slices.Contains(t.Methods, r.Method)
	if len(t.Methods) == 0 {
		wanted = r.Method == http.MethodPost || r.Method == http.MethodPatch
	}
	if !wanted || len(r.Header.Values(header)) > 0 {
		return base.RoundTrip(r)
	}
	value, err := t.value(r, header)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r2 := r.Clone(r.Context())
	if r2.Header == nil {
		r2.Header = http.Header{}
	}
	r2.Header.Set(header, value)
	return base.RoundTrip(r2)
}

// value returns what the header is to be.
func (t *Transport) value(r *http.Request, header string) (string, error) {
	key, ok := KeyOf(r.Context())
	if !ok {
		if before := r.Response; before != nil && before.Request != nil {
			if value := before.Request.Header.Get(header); value != "" {
				return value, nil // it was redirected
			}
		}
		key = rand.Text()
	}
	value, err := quoted(key)
	if err != nil {
		return "", fmt.Errorf("idemhttp: the context's key: %w", err)
	}
	return value, nil
}
