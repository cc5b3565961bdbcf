package idemgrpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// Fingerprint returns what the interceptor compares of a message by default: for an Options.Payload
// that has other parts as well, and as a payload of idempotency.Do. Messages that say the same have
// the same Fingerprint, however they were encoded, unless they have more of unknown types than is
// read of it: half a million fields, or 16 levels. A program that knows more fields or types than another
// one may compute another Fingerprint of a message that has them.
func Fingerprint(m proto.Message) idempotency.Fingerprint {
	sum, _ := rpc.Fingerprint(m) // the hash of the bytes is one, too
	return sum
}

// whole is the default Payload, of the whole message. What cannot be compared but by its bytes is:
// the call is refused if its client encodes it in another way when it repeats the call.
func whole(_ context.Context, _ string, req any) (any, error) {
	sum, err := rpc.Fingerprint(req)
	if err != nil && !errors.Is(err, rpc.ErrByBytes) {
		return nil, err
	}
	return sum, nil
}
