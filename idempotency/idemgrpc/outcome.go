package idemgrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// The recorded form is one line, and then a google.protobuf.Any of the message, or the
// google.rpc.Status of an error:
//
//	idemgrpc 1 0 -
//
// The third word is the code; the fourth is "omitted" if the message was not kept.
const (
	magic       = "idemgrpc 1 "
	wordOmitted = "omitted"
)

// whole is the default Payload, of the whole message. What cannot be compared but by its bytes is:
// the call is refused if its client encodes it in another way when it repeats the call.
func whole(_ context.Context, _ string, req any) (any, error) {
	sum, err := fingerprint(req)
	if err != nil && !errors.Is(err, errByBytes) {
		return nil, err
	}
	return sum, nil
}

// Encode returns the recorded form of an outcome: the result for idempotency.WasDone when an
// operator resolves a call. Duplicates get the message, or the status of failed if that is not
// nil. Encode returns an error if there is neither a message nor a status with another code than
// OK, or if protobuf could not decode the result.
func Encode(resp proto.Message, failed error) ([]byte, error) {
	st := status.Convert(failed)
	if (failed == nil) != (st.Code() == codes.OK) || failed == nil && resp == nil {
		return nil, errors.New("idemgrpc: encode outcome: there is neither a message nor an error with another code than OK")
	}
	stored, err := encode(resp, st, math.MaxInt)
	if err == nil {
		_, _, err = decode(stored)
	}
	if err != nil {
		return nil, fmt.Errorf("idemgrpc: encode outcome: %w", err)
	}
	return stored, nil
}

// encode returns the recorded form of a handler's result. The work is done, so a message that cannot
// be encoded, or that no duplicate could decode, is omitted; unkept is the reason. A message of more
// than most bytes is omitted without one.
func encode(resp any, failed *status.Status, most int) (stored []byte, unkept error) {
	var body []byte
	if failed.Code() != codes.OK {
		body, unkept = proto.Marshal(failed.Proto())
	} else {
		body, unkept = pack(resp)
	}
	word := "-"
	if unkept != nil || len(body) > most {
		word, body = wordOmitted, nil
	}
	return fmt.Appendf(nil, "%s%d %s\n%s", magic, failed.Code(), word, body), unkept
}

// pack returns a message within an Any. It returns an error for one that unpacking would not find: a
// dynamic message, of a type that is not in the program's registry.
func pack(resp any) ([]byte, error) {
	m, ok := resp.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", resp)
	}
	packed, err := anypb.New(m)
	if err != nil {
		return nil, err
	}
	if _, err := protoregistry.GlobalTypes.FindMessageByURL(packed.GetTypeUrl()); err != nil {
		return nil, fmt.Errorf("message %s is not in protoregistry.GlobalTypes, so no duplicate could read it: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return proto.Marshal(packed)
}

var (
	errForm    = errors.New("the recorded result was not made by idemgrpc.Encode, or by one of a later release")
	errOmitted = errors.New("the response was not kept")
)

// decode returns the message or the error of a recorded form. Bad is set if there is neither:
// errForm, errOmitted or an error of protobuf.
func decode(stored []byte) (resp any, failed, bad error) {
	line, body, ok := bytes.Cut(stored, []byte{'\n'})
	rest, is := strings.CutPrefix(string(line), magic)
	words := strings.Fields(rest)
	if !ok || !is || len(words) < 2 {
		return nil, nil, errForm
	}
	code, err := strconv.ParseUint(words[0], 10, 32)
	switch {
	case err != nil:
		return nil, nil, errForm
	case words[1] == wordOmitted:
		return nil, nil, errOmitted
	case codes.Code(code) != codes.OK:
		st := status.New(codes.Unknown, "").Proto()
		if err := proto.Unmarshal(body, st); err != nil {
			return nil, nil, err
		}
		if codes.Code(st.GetCode()) == codes.OK {
			return nil, nil, errForm
		}
		return nil, status.ErrorProto(st), nil
	}
	var packed anypb.Any
	if err := proto.Unmarshal(body, &packed); err != nil {
		return nil, nil, err
	}
	m, err := packed.UnmarshalNew()
	return m, nil, err
}
