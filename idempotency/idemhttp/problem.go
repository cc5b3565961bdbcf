package idemhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// Problem is an answer of the Middleware in place of the handler's response (RFC 9457). Clients of gRPC,
// gRPC-Web and Connect get an error of their protocol instead: see the package's comment.
type Problem struct {
	// Type is Options.Docs with the code as its fragment; empty without Docs.
	Type     string `json:"type,omitempty"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
	Code     Code   `json:"code"`
	// Ref identifies the request's record, for Store.Get, Resolve and Delete. It is set if an
	// operator has to act: with CodeUnknown and CodeUnreadable, and with CodeConflict under
	// idempotency.Refuse, where a repetition gets CodeUnknown. It is a hash of scope, operation
	// and key, and may be shown to the client.
	Ref idempotency.Ref `json:"ref,omitempty"`
	// Note is the operator's text for the request. It is set with CodeUnknown if Options.ShowNote is.
	Note string `json:"note,omitempty"`
	// Retryable reports whether the same request with the same key may get another answer later,
	// if neither the client nor an operator changes anything.
	Retryable bool `json:"retryable"`
}

// Code identifies a kind of Problem.
type Code string

// The codes.
const (
	CodeMissing     Code = "missing"     // 400: no key
	CodeMalformed   Code = "malformed"   // 400: the key is malformed
	CodeBody        Code = "body"        // 400: the body is malformed, a call is in a coding that is not read, or Options.Payload refuses it
	CodeScope       Code = "scope"       // 403: Options.Scope has returned an empty scope
	CodeIncomplete  Code = "incomplete"  // 408: the body has not arrived: the connection broke, or the server's ReadTimeout has passed
	CodeInProgress  Code = "in-progress" // 409: a duplicate is in progress, or the outcome is being recorded
	CodeUnknown     Code = "unknown"     // 409: an earlier attempt was lost, and an operator has to call Store.Resolve
	CodeConflict    Code = "conflict"    // 409: a condition given to Attempt.Attach is not met; the handler has run
	CodeFailed      Code = "failed"      // 409: the request has failed before, and the failure was recorded
	CodeNotKept     Code = "not-kept"    // 409: the request was done, and its response was not kept
	CodeTooLarge    Code = "too-large"   // 413: the body is larger than Options.MaxRequest
	CodeReused      Code = "reused"      // 422: the key was used with another payload, or for another host
	CodeScopeFull   Code = "scope-full"  // 429: the scope has as many records as the store allows
	CodeInternal    Code = "internal"    // 500: an option is wrong, or etcd refuses the operations given to Attempt.Attach
	CodeUnreadable  Code = "unreadable"  // 500: the recorded response cannot be read
	CodeUnavailable Code = "unavailable" // 503: etcd is unavailable, or the session is closed
	CodeFull        Code = "full"        // 503: etcd is near its quota, and no new request begins
)

// problems are the answers by code. The titles for missing, in-progress and reused are the draft's.
var problems = map[Code]Problem{
	CodeMissing:     {Status: 400, Title: "Idempotency-Key is missing", Detail: "This operation executes once for each key, and needs one."},
	CodeMalformed:   {Status: 400, Title: "Idempotency-Key is malformed"},
	CodeBody:        {Status: 400, Title: "The request's body cannot be read"},
	CodeScope:       {Status: 403, Title: "The request has no scope"},
	CodeIncomplete:  {Status: 408, Title: "The request's body has not arrived", Detail: "This request has not begun. An earlier one with its key may have executed: repeat it with the same key.", Retryable: true},
	CodeInProgress:  {Status: 409, Title: "A request is outstanding for this Idempotency-Key", Retryable: true},
	CodeUnknown:     {Status: 409, Title: "The outcome of the request with this Idempotency-Key is unknown", Detail: "It is not known what an earlier attempt has done. The request does not execute again until an operator has resolved it."},
	CodeConflict:    {Status: 409, Title: "A condition of the request is no longer met", Detail: "The request has executed, and what it was to write together with its outcome was not written.", Retryable: true},
	CodeFailed:      {Status: 409, Title: "The request with this Idempotency-Key has failed", Detail: "It does not execute again."},
	CodeNotKept:     {Status: 409, Title: "The response to this Idempotency-Key was not kept", Detail: "The request was done."},
	CodeTooLarge:    {Status: 413, Title: "The request's body is too large"},
	CodeReused:      {Status: 422, Title: "Idempotency-Key is already used", Detail: "Another request was sent with this key. Use one key for one request and its repetitions."},
	CodeScopeFull:   {Status: 429, Title: "Too Many Requests", Detail: "Too many requests of this client are recorded. Repetitions of recorded requests still get their responses.", Retryable: true},
	CodeInternal:    {Status: 500, Title: "Internal Server Error"},
	CodeUnreadable:  {Status: 500, Title: "The recorded response cannot be read", Detail: "An operator has to look at the record with this reference."},
	CodeUnavailable: {Status: 503, Title: "Service Unavailable", Retryable: true},
	CodeFull:        {Status: 503, Title: "Service Unavailable", Retryable: true},
}

// refuse writes the problem of a refusal.
func (c *config) refuse(w http.ResponseWriter, r *http.Request, by middleware.Refusal) {
	c.answer(w, r, Problem{Code: Code(by.Reason), Ref: by.Ref, Note: by.Note}, by.RetryAfter)
}

// unresolved reports whether the record of a request that is answered by the code is unknown: an operator has to resolve it,
// and the answer changes then. After is the Retry-After of an answer that changes without one.
func unresolved(code Code, after time.Duration) bool {
	return code == CodeUnknown || code == CodeConflict && after == 0
}

// answer writes a problem with the code, detail, reference and note of own. After is the Retry-After,
// if it is above 0.
func (c *config) answer(w http.ResponseWriter, r *http.Request, own Problem, after time.Duration) {
	p := problems[own.Code]
	p.Code, p.Instance, p.Ref, p.Note = own.Code, sent(r).EscapedPath(), own.Ref, own.Note
	if own.Detail != "" {
		p.Detail = own.Detail
	}
	if p.Code == CodeConflict && unresolved(p.Code, after) {
		p.Retryable = false
		p.Detail += " It does not execute again until an operator has resolved it."
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length") // of the handler's response
	h.Del("Content-Encoding")
	if unresolved(p.Code, after) {
		h.Set(outcomeHeader, string(CodeUnknown))
	}
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
	if by := protocolOfCall(r); by != plainHTTP {
		detail := own.Detail
		if p.Code == CodeMissing {
			detail = "its headers have no " + c.Header
		}
		writeStatus(w, r, by, rpc.Answer(middleware.Refusal{Reason: middleware.Reason(p.Code), Ref: p.Ref, Note: p.Note, RetryAfter: after}, detail))
		return
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}
