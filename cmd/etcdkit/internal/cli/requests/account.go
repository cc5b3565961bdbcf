package requests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// resolution is what `resolve` is asked to record.
type resolution struct {
	done, failed string
	notDone      bool
	status       int
	header       []string
	body         string
	message, typ string
	code, text   string
	flags        *pflag.FlagSet
	input        func(file string) ([]byte, error)
}

func (n *resolution) define(f *pflag.FlagSet) {
	f.StringVar(&n.done, "done", "", "it was done, with the content of this file as its result; - is standard input")
	f.IntVar(&n.status, "status", 0, "it was done, with a response of HTTP of this status")
	f.StringArrayVar(&n.header, "header", nil, "header of that response, as 'Name: value'; may be repeated")
	f.StringVar(&n.body, "body", "", "file with the body of that response; - is standard input")
	f.StringVar(&n.message, "message", "", "it was done, with the message of gRPC in this file; - is standard input")
	f.StringVar(&n.typ, "message-type", "", "full name of that message's type; without it the file is a google.protobuf.Any")
	f.StringVar(&n.code, "code", "", "it was done, with a failure of gRPC of this code, such as FAILED_PRECONDITION")
	f.StringVar(&n.text, "text", "", "text of that failure")
	f.StringVar(&n.failed, "failed", "", "it failed for good, with this text")
	f.BoolVar(&n.notDone, "not-done", false, "nothing was done: the next duplicate does the work")
}

// account is what an operator has found out about a request.
type account struct {
	what   idempotency.Resolution
	text   string                                   // for a question
	result func(idempotency.Record) ([]byte, error) // in the form that the entry replays; nil without one
	again  bool                                     // the next duplicate does the work
}

// outcome is what is recorded, as the list of changes has that of a console.
func (f *account) outcome() string {
	switch {
	case f.again:
		return "not-done"
	case f.result != nil:
		return "done"
	}
	return "failed"
}

// always is the result of an account that is the same for all entries.
func always(result []byte) func(idempotency.Record) ([]byte, error) {
	return func(idempotency.Record) ([]byte, error) { return result, nil }
}

// fits sets what is recorded for a request, or returns why nothing is.
func (f *account) fits(which *examined, r idempotency.Record) error {
	if f.again {
		return which.spares(r)
	}
	if f.result == nil {
		return nil
	}
	result, err := f.result(r)
	if err != nil {
		return exit.AsUsage(err)
	}
	if err := forms.Check(r.Via, r.Returns, result); err != nil {
		return exit.Usagef("%s: duplicates could not get this result: %w\nThe request was begun via %s: give %s.", which.is(r), err,
			r.Via, takenBy(r.Via))
	}
	f.what = idempotency.WasDone(result)
	if r.Via == "" {
		f.text += ", in a form that nothing compares, since the record does not say what replays it"
	}
	if r.Codec != "" {
		return exit.Usagef("%s: the services read results by their Codec %q, which this command does not have; resolve the request in "+
			"a program with the same idempotency.Options", which.is(r), r.Codec)
	}
	return nil
}

// takenBy returns the flags of the results that an entry replays.
func takenBy(via string) string {
	if by, ok := forms.RPCOf(via); ok {
		form := "in protobuf's binary form, with its --message-type"
		if by.Codec == "json" {
			form = "in JSON, as its client reads it"
		}
		return "the message by --message, " + form + ", or the failure by --code and --text"
	}
	kind, _, _ := strings.Cut(via, "/")
	return taken[kind]
}

// taken are the flags of the results that an entry replays.
var taken = map[string]string{
	forms.HTTP: "the response by --status, --header and --body",
	forms.GRPC: "the message by --message and --message-type, or the failure by --code and --text",
	forms.Do:   "JSON by --done",
}

// read returns the account that the flags describe.
func (n *resolution) read(ctx context.Context, flags *pflag.FlagSet, stdin io.Reader) (account, error) {
	n.flags = flags
	n.input = func(file string) ([]byte, error) { return verb.Input(ctx, file, stdin, mostResult) }
	kinds := []struct {
		flag string
		read func() (account, error)
		also []string // flags that need this one
	}{
		{"done", n.raw, nil},
		{"status", n.response, []string{"header", "body"}},
		{"message", n.packed, []string{"message-type"}},
		{"code", n.failure, []string{"text"}},
		{"failed", n.final, nil},
		{"not-done", n.nothing, []string{"force"}},
	}
	var read func() (account, error)
	for _, k := range kinds {
		for _, also := range k.also {
			if flags.Changed(also) && !flags.Changed(k.flag) {
				return account{}, exit.Usagef("--%s needs --%s", also, k.flag)
			}
		}
		if !flags.Changed(k.flag) {
			continue
		}
		if read != nil {
			read = nil
			break
		}
		read = k.read
	}
	if read == nil {
		return account{}, exit.Usagef("one of --done, --status, --message, --code, --failed and --not-done is needed")
	}
	f, err := read()
	if err != nil {
		return account{}, exit.AsUsage(err)
	}
	return f, nil
}

func (n *resolution) raw() (account, error) {
	result, err := n.content("done", n.done)
	if err == nil && len(result) == 0 { // as of a producer in a pipe that has failed
		err = fmt.Errorf("--done %s: it is empty; duplicates would get an empty result", n.done)
	}
	return account{result: always(result), text: fmt.Sprintf("was done, with a result of %d bytes", len(result))}, err
}

func (n *resolution) response() (f account, err error) {
	res := idemhttp.Response{Status: n.status}
	if res.Header, err = forms.Header(n.header); err != nil {
		return f, fmt.Errorf("--header: %w", err)
	}
	if n.flags.Changed("body") {
		if res.Body, err = n.content("body", n.body); err == nil && len(res.Body) == 0 {
			err = fmt.Errorf("--body %s: it is empty; without --body the response has none", n.body)
		}
		if err != nil {
			return f, err
		}
	}
	if err := res.Check(); err != nil {
		return f, fmt.Errorf("--status %d: the response cannot be recorded: %w", n.status, err)
	}
	return account{result: always(res.Encode()), text: fmt.Sprintf("was done, with the status %d, %s and a body of %d bytes", n.status,
		output.Count(len(res.Header), "header", "headers"), len(res.Body))}, nil
}

func (n *resolution) packed() (f account, err error) {
	b, err := n.content("message", n.message)
	if err == nil && len(b) == 0 && n.message == "-" { // as of a producer in a pipe that has failed
		err = errors.New("--message -: standard input is empty; a message without fields is an empty file")
	}
	if err != nil {
		return f, err
	}
	if n.typ != "" && !protoreflect.FullName(n.typ).IsValid() {
		return f, fmt.Errorf("--message-type %q is no full name of a message's type, such as shop.v1.Receipt", n.typ)
	}
	return account{
		result: func(r idempotency.Record) ([]byte, error) { return n.recorded(r, b) },
		text:   fmt.Sprintf("was done, with the message%s in %s, of %d bytes", spaced(n.typ), n.message, len(b)),
	}, nil
}

func spaced(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// recorded returns the recorded form of a message in the form that the client of the call reads.
func (n *resolution) recorded(r idempotency.Record, b []byte) ([]byte, error) {
	by, rpc := forms.RPCOf(r.Via)
	if rpc && by.Codec == "json" {
		if !json.Valid(b) {
			return nil, fmt.Errorf("--message %s: the client of this call reads JSON: give the message as JSON, as protojson writes it", n.message)
		}
		return by.Message(b).Encode(), n.returned(r, n.typ)
	}
	m := &anypb.Any{TypeUrl: "type.googleapis.com/" + n.typ, Value: b}
	if n.typ == "" {
		var err error
		if m, err = forms.Packed(b); err != nil {
			return nil, fmt.Errorf("--message %s: %w in binary form; if it is the message itself, add its type by --message-type", n.message, err)
		}
	} else if proto.Unmarshal(b, &emptypb.Empty{}) != nil {
		return nil, fmt.Errorf("--message %s: it is no message of protobuf in binary form, as 'protoc --encode' writes it", n.message)
	}
	if err := n.returned(r, string(m.MessageName())); err != nil {
		return nil, err
	}
	if rpc {
		return by.Message(m.GetValue()).Encode(), nil
	}
	any, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("--message %s: %w", n.message, err)
	}
	return forms.Call{Body: any}.Encode(), nil
}

// returned returns an error for a message of another type than the call returns.
func (n *resolution) returned(r idempotency.Record, typ string) error {
	if r.Returns == "" || typ == "" || typ == r.Returns {
		return nil
	}
	return fmt.Errorf("--message %s: it is a %s, and the call returns a %s", n.message, typ, r.Returns)
}

func (n *resolution) failure() (f account, err error) {
	var code codes.Code
	if err := json.Unmarshal([]byte(strconv.Quote(n.code)), &code); err != nil || code == codes.OK {
		return f, fmt.Errorf("--code %q is no code of a failure of gRPC, such as FAILED_PRECONDITION", n.code)
	}
	return account{
		result: func(r idempotency.Record) ([]byte, error) {
			st := forms.StatusOf(uint32(code), n.text)
			if by, ok := forms.RPCOf(r.Via); ok {
				return by.Failure(st).Encode(), nil
			}
			b, err := proto.Marshal(st)
			return forms.Call{Code: uint32(code), Body: b}.Encode(), err
		},
		text: fmt.Sprintf("was done, with the failure %s: %q", n.code, n.text),
	}, nil
}

func (n *resolution) final() (f account, err error) {
	if n.failed == "" {
		return f, errors.New("--failed has no text")
	}
	return account{what: idempotency.HasFailed(n.failed), text: fmt.Sprintf("has failed for good: %q", n.failed)}, nil
}

func (n *resolution) nothing() (f account, err error) {
	if !n.notDone {
		return f, errors.New("--not-done=false says nothing")
	}
	return account{what: idempotency.NotDone(), again: true, text: "was not done, so that the next duplicate does the work"}, nil
}

// mostResult bounds what is read of a result, in bytes: etcd takes no larger request.
const mostResult = 1 << 20

// content returns what the file of a flag has.
func (n *resolution) content(flag, name string) ([]byte, error) {
	b, err := n.input(name)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return b, nil
}
