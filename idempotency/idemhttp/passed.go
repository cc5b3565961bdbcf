package idemhttp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// An answer that an outcome is unknown may pass through another Middleware, that of a gateway in front of the service,
// and must not be recorded there: it is not the outcome, and an operator resolves it.

// outcomeHeader is a header of such an answer.
const outcomeHeader = "Idempotency-Outcome"

// saysUnknown reports whether a response with these headers is such an answer.
func saysUnknown(h http.Header) bool { return h.Get(outcomeHeader) == string(CodeUnknown) }

// passedOn returns the ending of a handler that has passed such an answer on.
func passedOn(status int) ending {
	return ending{kind: middleware.Interrupted, status: status, text: "the handler has passed on that an outcome is unknown"}
}

// ofGateway returns the ending of an error of a gateway in front of idemgrpc that is no final one, by the reason in its body,
// and nil for all others.
func ofGateway(status int, body []byte) *ending {
	var end ending
	var e connectError
	switch reason := rpc.ReasonInJSON(body); {
	case reason == middleware.Unknown, reason == "" && json.Unmarshal(body, &e) == nil && e.saysUnknown():
		end = passedOn(status)
	case reason == middleware.InProgress, reason == middleware.Conflict:
		end = ofCode(10)
	default:
		return nil
	}
	return &end
}

// undecided reports whether the end of a response is one that a retry may change, by what its status and its headers do not
// say alone: an error for which ofGateway returns an ending, one of Connect whose code is not recorded, what is no answer to a
// call at all, or an error that breaks off before that is known.
func undecided(r *http.Request, resp *http.Response) bool {
	status := resp.StatusCode
	if status < 200 || status >= 300 && status < 400 && resp.Header.Get("Location") != "" { // the client follows it
		return false
	}
	if status >= 400 && mediaType(resp.Header) == "application/json" {
		body, err := beginning(resp)
		if err != nil || ofGateway(status, body) != nil {
			return true
		}
		var begun []byte
		if len(body) == maxLast {
			begun = body
		}
		if e := connectErrorIn(begun, body); protocolOf(r, resp.Header) == connectUnary && e.Code != "" {
			return e.end().kind.Action() != idempotency.Remember
		}
	}
	return endWithoutCode(r, resp.Header, status).kind.Action() != idempotency.Remember
}

// beginning reads the beginning of a body, not compressed. The body can still be read.
func beginning(resp *http.Response) ([]byte, error) {
	if resp.Body == nil || resp.Body == http.NoBody { // which layers in front may look for
		return nil, nil
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxLast))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return plainBody(resp.Header, head), err
}

// fieldsSayUnknown reports whether a status of gRPC is such an answer, by its details in headers or trailers.
func fieldsSayUnknown(places []http.Header) bool {
	for _, text := range fieldIn(places, "Grpc-Status-Details-Bin") {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err == nil && rpc.EncodedSaysUnknown(b) {
			return true
		}
	}
	return false
}

// saysUnknown reports whether an error of Connect is such an answer.
func (e *connectError) saysUnknown() bool {
	for _, d := range e.Details {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(d.Value, "="))
		if err == nil && rpc.DetailSaysUnknown(d.Type, b) {
			return true
		}
	}
	return false
}

// numberOfStatus returns the code of a status of gRPC in JSON, in the form in which grpc-gateway writes it: a number, with a
// message and details, and nothing else; 0 for any other JSON, such as another API's error with a number. Without protojson's
// EmitUnpopulated, details that are empty are left out.
func numberOfStatus(body []byte) float64 {
	var st map[string]any // the names of members count in their letter case
	if json.Unmarshal(body, &st) != nil {
		return 0
	}
	if _, detailed := st["details"].([]any); detailed {
		delete(st, "details")
	}
	if _, says := st["message"].(string); says && len(st) == 2 {
		code, _ := st["code"].(float64)
		return code
	}
	return 0
}
