package idemgrpc

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/etcdkit/etcdkit/internal/forms"
)

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
// be encoded, or that no duplicate could decode, is omitted; unkept is the reason. A message or a status of more
// than most bytes is omitted without one; of a status its code is kept.
func encode(resp any, failed *status.Status, most int) (stored []byte, unkept error) {
	var body []byte
	if failed.Code() != codes.OK {
		body, unkept = proto.Marshal(valid(failed.Proto()))
	} else {
		body, unkept = pack(resp)
	}
	c := forms.Call{Code: uint32(failed.Code()), Body: body}
	if unkept != nil || len(body) > most {
		c.Word, c.Body = forms.Omitted, nil
	}
	return c.Encode(), unkept
}

// valid replaces what is no UTF-8 in the texts of a status, which protobuf does not encode, as grpc does for the client.
func valid(st *spb.Status) *spb.Status {
	st.Message = string([]rune(st.GetMessage()))
	for _, d := range st.GetDetails() {
		if !utf8.ValidString(d.GetTypeUrl()) {
			d.TypeUrl = string([]rune(d.GetTypeUrl()))
		}
	}
	return st
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

var errOmitted = errors.New("the response was not kept")

// decode returns the message or the error of a recorded form. Bad is set if there is neither:
// forms.ErrGRPC, errOmitted for a call that was done, or an error of protobuf.
func decode(stored []byte) (resp any, failed, bad error) {
	c, ok := forms.ParseCall(stored)
	switch {
	case !ok:
		return nil, nil, forms.ErrGRPC
	case c.Word == forms.Omitted && codes.Code(c.Code) == codes.OK:
		return nil, nil, errOmitted
	case c.Word == forms.Omitted:
		return nil, status.Error(codes.Code(c.Code), forms.FailureOmitted), nil
	case codes.Code(c.Code) != codes.OK:
		st := status.New(codes.Unknown, "").Proto()
		if err := proto.Unmarshal(c.Body, st); err != nil {
			return nil, nil, err
		}
		if codes.Code(st.GetCode()) == codes.OK {
			return nil, nil, forms.ErrGRPC
		}
		return nil, status.ErrorProto(st), nil
	}
	var packed anypb.Any
	if err := proto.Unmarshal(c.Body, &packed); err != nil {
		return nil, nil, err
	}
	m, err := packed.UnmarshalNew()
	return m, nil, err
}

// fits returns an error for an operator's message of another type than the method returns, which its client would read
// as one of that type, as far as its fields have the same numbers. Resolve refuses it where the record has the type.
// Messages of handlers are not compared: a release may return another type that the clients can read as well.
func fits(resp any, returns string) error {
	m, ok := resp.(proto.Message)
	if !ok || returns == "" {
		return nil
	}
	if is := string(m.ProtoReflect().Descriptor().FullName()); is != returns {
		return fmt.Errorf("the message is a %s, and the method returns a %s", is, returns)
	}
	return nil
}
