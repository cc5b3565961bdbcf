// Package forms has the forms in which the results of requests are recorded, as far as they are known without the types
// within: an operator's result is compared with the form of the entry that replays it. It has no I/O.
package forms

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The entries that begin requests, as records name them; those of idemhttp for calls of RPC are in type RPC. A program that calls Begin and Commit itself has none of
// these.
const (
	Do   = "do"   // idempotency.Do: JSON
	HTTP = "http" // idemhttp: a Response
	GRPC = "grpc" // idemgrpc: a Call
)

// The errors of results that no release knows.
var (
	ErrHTTP = errors.New("the recorded result was not made by idemhttp.Response.Encode, or by one of a later release")
	ErrGRPC = errors.New("the recorded result was not made by idemgrpc.Encode, or by one of a later release")
)

// Check returns an error if a result is in a form that the entry cannot replay. returns is the type of the message that
// the call returns, or empty if it is not known. Check knows nothing of other entries.
func Check(entry, returns string, result []byte) error {
	call, rpc := RPCOf(entry)
	kind, _, _ := strings.Cut(entry, "/")
	switch kind {
	case Do:
		if !json.Valid(result) {
			return errors.New("the result is no JSON, which idempotency.Do replays")
		}
	case HTTP:
		r, ok := ParseResponse(result)
		if !ok {
			return fmt.Errorf("idemhttp replays it: %w", ErrHTTP)
		}
		err := r.check()
		if err == nil && rpc {
			err = call.check(r)
		}
		if err != nil {
			return fmt.Errorf("idemhttp replays it: %w", err)
		}
	case GRPC:
		c, ok := ParseCall(result)
		if !ok {
			return fmt.Errorf("idemgrpc replays it: %w", ErrGRPC)
		}
		if err := c.check(returns); err != nil {
			return fmt.Errorf("idemgrpc replays it: %w", err)
		}
	}
	return nil
}
