package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Transport sets the key of each request that has none, also within an attempt; it sends an Attempt.ChildKey only by
// WithKey or in a header that the caller has set. It is an http.RoundTripper, safe for
// concurrent use; its zero value works. The key is the first of these that exists:
//
//   - the key of the request's context, from WithKey or, outside of attempts, WithNewKey: to retry, use the same
//     context;
//   - if the context is an attempt's (in a handler behind the Middleware, or in the function of
//     idempotency.Do): idempotency.CallKey of method, host, URL and body. An attempt that takes over
//     from a lost one sends the same requests with the same keys, and so does a handler that retries
//     after an error, a 5xx, a 409, an unknown outcome, or a code of gRPC or Connect that is not recorded, also one that the
//     client of a call reads from a status without a code. It is known when the response was read. Neither the spelling of
//     the URL counts nor the encoding of a body in JSON, in a form, in multiple parts or in messages of RPC, nor its compression by gzip, as in Content, up to
//     64 MiB: JSON and a form have to have their Content-Type. A body that says something else each time, such as a
//     timestamp, has a new key each time, and so has one in any other form whose encoder is not
//     deterministic: for such a request use WithKey with an Attempt.ChildKey. A request that cannot be
//     compared is not sent, and needs WithKey as well: its body can be read only once (it has no
//     GetBody), or is said to be JSON and is none that idempotency.CheckJSON accepts, also in a part, or
//     is no form although its type is that of one, or has no parts although its type is multipart, or is
//     not compressed by gzip although its Content-Encoding says so, or is JSON, a form or in parts and compressed in another
//     way, or it is a call of RPC whose messages cannot be compared. Nor is one
//     sent that differs from an earlier one of the attempt in its headers alone, such as Stripe-Account
//     or Authorization: the attempt that takes over may send the two in another order, and they would swap
//     their keys. Once the outcome of the attempt is recorded, such requests of work that continues are sent, and each has a
//     random key. Headers that trace or time a request do not count, nor do those that Base adds: let Base
//     sign requests;
//   - a new random key for each RoundTrip.
//
// Redirects have the same key.
//
// net/http's Transport repeats a request by itself if a connection that it has used before breaks while it waits for
// the answer, and the request has an Idempotency-Key and no body or a GetBody: the service may have executed it
// twice then, unless it knows the key. Within an attempt under idempotency.Refuse, Transport keeps net/http from
// that, whichever layer has set the key, so that its caller gets the error: see "At most one request" in the package's comment. If Base is not
// an *http.Transport, such a request has no GetBody, and one without a body is sent with an empty one, in chunks.
type Transport struct {
	// Base sends the requests. nil means http.DefaultTransport.
	Base http.RoundTripper
	// Methods are the methods that get a key, in any letter case; empty means POST and PATCH.
	Methods []string
	// Header is the header with the key; empty means Idempotency-Key.
	Header string
}

type ctxKey struct{}

// WithKey returns a context whose requests have that key. Use one context for a request and its
// retries.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, ctxKey{}, middleware.Given(key))
}

// WithNewKey returns a context whose requests have a new random key. Call it outside of the loop that
// retries. Within an attempt a random key would be another one for the attempt that takes over: there, the key is derived
// as without WithNewKey, equal requests of the context have one key, and one that was made before the attempt has no effect.
// A request that differs in each try, as by a timestamp, then has another key in each, and may execute twice: use
// WithKey with an Attempt.ChildKey for it.
func WithNewKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, ctxKey{}, middleware.GivenAnew(ctx))
}

// KeyOf returns the key that the requests of a context have by WithKey or WithNewKey.
func KeyOf(ctx context.Context) (string, bool) { return given(ctx).For(ctx) }

// given returns the key that a context was given, or nil.
func given(ctx context.Context) *middleware.GivenKey {
	k, _ := ctx.Value(ctxKey{}).(*middleware.GivenKey)
	return k
}

// RoundTrip sends a request with its key. It returns an error, and sends nothing, if the context's key
// is not 1 to 255 printable ASCII characters, or if a request of an attempt cannot have a key: see
// Transport. It returns what Base returns otherwise.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, header := cmp.Or(t.Base, http.DefaultTransport), cmp.Or(t.Header, defaultHeader)
	if !slices.Contains(methods(t.Methods), strings.ToUpper(r.Method)) || len(r.Header.Values(header)) > 0 {
		return send(base, r)
	}
	value, retry, err := value(r, header)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	ctx := r.Context()
	if retry != nil {
		ctx = context.WithValue(ctx, retryKey{}, retry) // for a redirect
	}
	r2 := r.Clone(ctx)
	if r2.Header == nil {
		r2.Header = http.Header{}
	}
	r2.Header.Set(header, value)
	if retry == nil {
		return send(base, r2)
	}
	over := false
	defer func() {
		if !over { // Base has panicked, or nothing was sent
			retry()
		}
	}()
	if hasBody(r) && r.GetBody != nil {
		if r2.Body, err = rewound(r); err != nil {
			return nil, err
		}
	}
	resp, err := send(base, r2)
	answered(r2, resp, err, retry)
	over = true
	return resp, err
}

// value returns the header's value. For a request of an attempt, retry makes the next equal
// request a retry of this one.
func value(r *http.Request, header string) (value string, retry func(), err error) {
	key, ok := KeyOf(r.Context())
	if !ok {
		if before := r.Response; before != nil && before.Request != nil {
			if value := before.Request.Header.Get(header); value != "" { // it was redirected
				retry, _ := before.Request.Context().Value(retryKey{}).(func())
				return value, retry, nil
			}
		}
		key, retry, err = middleware.CallKey(r.Context(), given(r.Context()), fmt.Sprintf("idemhttp: send %s %s%s", r.Method, r.URL.Host, r.URL.Path), func() (string, map[string]string, error) {
			text, err := describeCall(r)
			return text, apart(r), err
		})
		if err != nil {
			return "", nil, err
		}
	}
	if value, err = middleware.QuoteKey(key); err != nil {
		return "", nil, fmt.Errorf("idemhttp: the context's key (WithKey): %w", err)
	}
	return value, retry, nil
}

// apart returns what distinguishes a request from one with the same description.
func apart(r *http.Request) map[string]string {
	apart := middleware.Apart(r.Header)
	if r.URL.User != nil {
		apart["the user of the URL"] = r.URL.User.String()
	}
	return apart
}

type retryKey struct{}

// answered calls retry if a request has no final response: none, one that a retry may change, or
// one whose body breaks off.
func answered(r *http.Request, resp *http.Response, err error, retry func()) {
	switch {
	case err != nil, resp == nil, resp.StatusCode == http.StatusConflict, saysUnknown(resp.Header), RememberFinal(resp.StatusCode) != idempotency.Remember:
		retry()
	case framed(r, resp):
		resp.Body = &call{ReadCloser: resp.Body, resp: resp, frames: framesOf(protocolOf(r, resp.Header)), retry: retry}
	case undecided(r, resp):
		retry()
	case resp.Body == nil: // of a RoundTripper of the caller's own
	case resp.Body != http.NoBody && resp.StatusCode != http.StatusSwitchingProtocols:
		resp.Body = &watched{resp.Body, retry}
	}
}

// watched is a body that calls broken if it breaks off.
type watched struct {
	io.ReadCloser
	broken func()
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken()
	}
	return n, err
}

// CloseIdleConnections closes those of Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if base, ok := cmp.Or(t.Base, http.DefaultTransport).(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}
