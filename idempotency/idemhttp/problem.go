package idemhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Problem is an answer of the Middleware's own, in the form of RFC 9457.
type Problem struct {
	// Type is Options.Docs with the code as its fragment; empty without Docs.
	Type     string `json:"type,omitempty"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
	Code     Code   `json:"code"`
	// Ref is the reference of the request's record, for Store.Get, Resolve and Delete, where
	// an operator has to act: with CodeUnknown and CodeUnreadable. It is a hash of scope,
	// operation and key, and may be shown to the client.
	Ref idempotency.Ref `json:"ref,omitempty"`
	// Retryable says that the same request with the same key may get another answer.
	Retryable bool `json:"retryable"`
}

// Code tells the answers of the Middleware apart.
type Code string

// The codes.
const (
	CodeMissing     Code = "missing"     // 400: no key
	CodeMalformed   Code = "malformed"   // 400: the key is none
	CodeBody        Code = "body"        // 400: the body could not be read or understood
	CodeScope       Code = "scope"       // 403: nobody knows whose request it is
	CodeInProgress  Code = "in-progress" // 409: a duplicate is being worked on, or the outcome being recorded
	CodeUnknown     Code = "unknown"     // 409: an earlier attempt was lost, and somebody has to find out
	CodeConflict    Code = "conflict"    // 409: a condition of the handler's commit was not met; the handler has run
	CodeFailed      Code = "failed"      // 409: it has failed before, and that was remembered
	CodeNotKept     Code = "not-kept"    // 409: it was done before, and its response was not kept
	CodeTooLarge    Code = "too-large"   // 413: the body is above MaxRequest
	CodeReused      Code = "reused"      // 422: the key was used with another payload
	CodeScopeFull   Code = "scope-full"  // 429: the scope has as many records as the store allows
	CodeInternal    Code = "internal"    // 500: the Middleware is used or set up in a wrong way, or etcd takes no such operations as the handler's
	CodeUnreadable  Code = "unreadable"  // 500: what is recorded cannot be read by this release
	CodeUnavailable Code = "unavailable" // 503: the store cannot be asked
	CodeFull        Code = "full"        // 503: the store begins no new requests
)

// problems are the answers, the titles of the first, fifth and eleventh from the draft.
var problems = map[Code]Problem{
	CodeMissing:     {Status: 400, Title: "Idempotency-Key is missing", Detail: "This operation is done once for each key, and needs one."},
	CodeMalformed:   {Status: 400, Title: "Idempotency-Key is malformed"},
	CodeBody:        {Status: 400, Title: "The request's body cannot be read"},
	CodeScope:       {Status: 403, Title: "The request has no scope"},
	CodeInProgress:  {Status: 409, Title: "A request is outstanding for this Idempotency-Key", Retryable: true},
	CodeUnknown:     {Status: 409, Title: "The outcome of the request with this Idempotency-Key is unknown", Detail: "An earlier attempt was interrupted. It is not repeated until an operator has resolved it."},
	CodeConflict:    {Status: 409, Title: "The request was overtaken by a change", Detail: "The handler has run, and what it was to write together with the outcome was not written.", Retryable: true},
	CodeFailed:      {Status: 409, Title: "The request with this Idempotency-Key has failed", Detail: "It is not tried again."},
	CodeNotKept:     {Status: 409, Title: "The response to this Idempotency-Key was not kept", Detail: "The request was done."},
	CodeTooLarge:    {Status: 413, Title: "The request's body is too large"},
	CodeReused:      {Status: 422, Title: "Idempotency-Key is already used", Detail: "Another request was sent with this key before. A key is for one request and its repetitions."},
	CodeScopeFull:   {Status: 429, Title: "Too Many Requests", Detail: "Too many requests of this client are remembered. Repetitions of those are answered as before.", Retryable: true},
	CodeInternal:    {Status: 500, Title: "Internal Server Error"},
	CodeUnreadable:  {Status: 500, Title: "The recorded response cannot be read", Detail: "An operator has to read or delete the record with this reference."},
	CodeUnavailable: {Status: 503, Title: "Service Unavailable", Retryable: true},
	CodeFull:        {Status: 503, Title: "Service Unavailable", Retryable: true},
}

// refuse writes the problem for a refusal.
func (c *config) refuse(w http.ResponseWriter, r *http.Request, by middleware.Refusal) {
	c.answer(w, r, Problem{Code: Code(by.Reason), Ref: by.Ref}, by.RetryAfter)
}

// answer writes a problem, of which code, detail and reference are given. After is for
// Retry-After, if it is above 0.
func (c *config) answer(w http.ResponseWriter, r *http.Request, own Problem, after time.Duration) {
	p := problems[own.Code]
	p.Code, p.Instance, p.Ref = own.Code, sent(r), own.Ref
	if own.Detail != "" {
		p.Detail = own.Detail
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if c.Docs != "" {
		p.Type = c.Docs + "#" + string(p.Code)
		h.Add("Link", "<"+c.Docs+`>; rel="describedby"; type="text/html"`)
	}
	if after > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	if c.OnProblem != nil {
		c.OnProblem(w, r, p)
		return
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}
