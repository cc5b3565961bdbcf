package idemhttp

import (
	"encoding/base64"
	"net/http"
	"strings"

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
	return ending{middleware.Interrupted, status, "the handler has passed on that an outcome is unknown"}
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
