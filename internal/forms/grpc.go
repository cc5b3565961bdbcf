package forms

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Call is the recorded form of a call of gRPC. It is one line, and then a google.protobuf.Any of the
// message, or the google.rpc.Status of an error:
//
//	idemgrpc 1 0 -
//
// The third word is the code; the fourth is "omitted" if the message, or all of the status but its code, was not kept.
type Call struct {
	Code uint32
	Word string
	Body []byte
}

const callMagic = "idemgrpc 1 "

// FailureOmitted is the text of a recorded failure of RPC of which only the code was kept.
const FailureOmitted = "the call has failed, and the text of its error was not kept"

// Encode returns the recorded form.
func (c Call) Encode() []byte {
	word := c.Word
	if word == "" {
		word = "-"
	}
	return fmt.Appendf(nil, "%s%d %s\n%s", callMagic, c.Code, word, c.Body)
}

// ParseCall reads a Call, without its body.
func ParseCall(stored []byte) (c Call, ok bool) {
	line, body, ok := bytes.Cut(stored, []byte{'\n'})
	rest, is := strings.CutPrefix(string(line), callMagic)
	words := strings.Fields(rest)
	if !ok || !is || len(words) < 2 {
		return c, false
	}
	code, err := strconv.ParseUint(words[0], 10, 32)
	return Call{Code: uint32(code), Word: words[1], Body: body}, err == nil
}

// check returns an error for a body that protobuf does not take for a message, or for one of another type than the call
// returns, or for a status.
func (c Call) check(returns string) error {
	if c.Word == Omitted {
		return nil
	}
	if c.Code != 0 {
		var st spb.Status
		if err := proto.Unmarshal(c.Body, &st); err != nil {
			return err
		}
		if st.GetCode() == 0 {
			return ErrGRPC
		}
		return nil
	}
	m, err := Packed(c.Body)
	if err == nil && returns != "" && string(m.MessageName()) != returns {
		err = fmt.Errorf("the message is a %s, and the call returns a %s", m.MessageName(), returns)
	}
	return err
}

// Packed returns the message in a google.protobuf.Any. It returns an error for another message, as far as that can be
// seen: the first field of many is a text, as a type is.
func Packed(b []byte) (*anypb.Any, error) {
	m := new(anypb.Any)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if !strings.Contains(m.GetTypeUrl(), "/") || m.MessageName() == "" || len(m.ProtoReflect().GetUnknown()) > 0 {
		return nil, errors.New("the message is no google.protobuf.Any")
	}
	return m, nil
}
