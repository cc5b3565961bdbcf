package idemhttp

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/forms"
)

// EncodeMessage returns the recorded form of a response to a call of gRPC, gRPC-Web or Connect: the result for
// idempotency.WasDone when an operator resolves the call. Via is the record's (Record.Via), which names the protocol and
// the codec; the message is encoded in that codec: in JSON if Via ends in "+json", else in protobuf's binary form.
// EncodeMessage returns an error for a Via of something else: a request of HTTP gets a Response, a call of idemgrpc what
// idemgrpc.Encode returns.
func EncodeMessage(via string, message []byte) ([]byte, error) {
	by, ok := forms.RPCOf(via)
	if !ok {
		return nil, notRPC(via)
	}
	return by.Message(message).Encode(), nil
}

// EncodeFailure is EncodeMessage of a failure: a code of gRPC by its number, and its text. It returns an error for such
// a Via, and for a number that is no code of a failure.
func EncodeFailure(via string, code uint32, text string) ([]byte, error) {
	by, ok := forms.RPCOf(via)
	if !ok {
		return nil, notRPC(via)
	}
	if code == 0 || int(code) >= len(forms.Codes) {
		return nil, fmt.Errorf("idemhttp: encode failure: %d is no code of a failure", code)
	}
	return by.Failure(forms.StatusOf(code, text)).Encode(), nil
}

func notRPC(via string) error {
	return fmt.Errorf("idemhttp: encode result: %q names no call of gRPC, gRPC-Web or Connect behind idemhttp whose messages are protobuf or JSON", via)
}
