package forms

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// RPC is how a call of gRPC, gRPC-Web or Connect behind idemhttp is answered: records name it as their entry, in the
// form "http/grpc" or "http/grpc+json".
type RPC struct {
	Protocol Protocol
	Codec    string // "json", or "" for protobuf; another one is not known here
}

// Protocol is a protocol of RPC over HTTP.
type Protocol string

// The protocols.
const (
	OverGRPC      Protocol = "grpc"
	OverWeb       Protocol = "grpc-web"
	OverWebText   Protocol = "grpc-web-text" // in base64
	OverConnect   Protocol = "connect"       // a unary call
	ConnectStream Protocol = "connect-stream"
)

var protocols = []Protocol{OverGRPC, OverWeb, OverWebText, OverConnect, ConnectStream}

// Entry returns the name of the entry.
func (r RPC) Entry() string {
	name := HTTP + "/" + string(r.Protocol)
	if r.Codec != "" {
		name += "+" + r.Codec
	}
	return name
}

// RPCOf returns the RPC that an entry names, if it is one whose messages are known here.
func RPCOf(entry string) (RPC, bool) {
	for _, p := range protocols {
		for _, codec := range []string{"", "json"} {
			if r := (RPC{p, codec}); r.Entry() == entry {
				return r, true
			}
		}
	}
	return RPC{}, false
}

// Media returns the media type of the responses.
func (r RPC) Media() string {
	codec := r.Codec
	if codec == "" {
		codec = "proto"
	}
	switch r.Protocol {
	case OverConnect:
		return "application/" + codec
	case ConnectStream:
		return "application/connect+" + codec
	}
	return "application/" + string(r.Protocol) + "+" + codec
}

// Reply is a response to a call of RPC. Trailers have their own names.
type Reply struct {
	Status  int
	Header  map[string]string
	Trailer map[string]string
	Body    []byte
}

// The flags of the frames that end a body.
const (
	flagStreamEnd = 0x02
	flagWebEnd    = 0x80
	compressed    = 0x01
)

// Message returns the response with one message, which is encoded in the call's codec.
func (r RPC) Message(message []byte) Reply {
	reply := Reply{Status: 200, Header: map[string]string{"Content-Type": r.Media()}}
	switch r.Protocol {
	case OverConnect:
		reply.Body = message
	case ConnectStream:
		reply.Body = append(frame(0, message), frame(flagStreamEnd, []byte("{}"))...)
	case OverGRPC:
		reply.Body, reply.Trailer = frame(0, message), map[string]string{"Grpc-Status": "0"}
	default:
		reply.Body = r.text(append(frame(0, message), frame(flagWebEnd, []byte("grpc-status: 0\r\n"))...))
	}
	return reply
}

// Failure returns the response that fails with a status.
func (r RPC) Failure(st *spb.Status) Reply {
	reply := Reply{Status: 200, Header: map[string]string{"Content-Type": r.Media()}}
	switch r.Protocol {
	case OverConnect:
		reply.Header["Content-Type"] = "application/json"
		reply.Status, reply.Body = CodeOf(st.GetCode()).Status, ConnectError(st)
	case ConnectStream:
		reply.Body = frame(flagStreamEnd, fmt.Appendf(nil, `{"error":%s}`, ConnectError(st)))
	case OverGRPC: // without a body, headers take the place of trailers
		for _, f := range grpcFields(st) {
			reply.Header[f[0]] = f[1]
		}
	default:
		// In a frame, not in headers: of those a browser shows a page of another origin only what CORS exposes.
		var lines []byte
		for _, f := range grpcFields(st) {
			lines = fmt.Appendf(lines, "%s: %s\r\n", strings.ToLower(f[0]), f[1])
		}
		reply.Body = r.text(frame(flagWebEnd, lines))
	}
	return reply
}

// StatusOf returns a status without details. What is no UTF-8 in its text is replaced.
func StatusOf(code uint32, text string) *spb.Status {
	return &spb.Status{Code: int32(code), Message: strings.ToValidUTF8(text, "\uFFFD")} //nolint:gosec // there are seventeen codes
}

// text returns a body of gRPC-Web as it is sent.
func (r RPC) text(body []byte) []byte {
	if r.Protocol == OverWebText {
		return []byte(base64.StdEncoding.EncodeToString(body))
	}
	return body
}

func frame(flags byte, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(content))), content...) //nolint:gosec // as long as a message may be
}

// grpcFields returns the fields of gRPC for a status.
func grpcFields(st *spb.Status) [][2]string {
	details, err := proto.Marshal(st)
	if err != nil {
		panic(err) // its texts are UTF-8
	}
	return [][2]string{
		{"Grpc-Status", fmt.Sprint(st.GetCode())}, {"Grpc-Message", percent(st.GetMessage())},
		{"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details)},
	}
}

// percent encodes a text as Grpc-Message has it: all but printable ASCII, and the percent sign.
func percent(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// ConnectError returns the error of Connect for a status. Details have their bytes in base64 without padding.
func ConnectError(st *spb.Status) []byte {
	type detail struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	e := struct {
		Code    string   `json:"code"`
		Message string   `json:"message,omitempty"`
		Details []detail `json:"details,omitempty"`
	}{Code: CodeOf(st.GetCode()).Name, Message: st.GetMessage()}
	for _, d := range st.GetDetails() {
		_, name, _ := strings.Cut(d.GetTypeUrl(), "/")
		e.Details = append(e.Details, detail{name, base64.RawStdEncoding.EncodeToString(d.GetValue())})
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return b
}

// Code is a code of gRPC: the name that Connect gives to it, and the status of HTTP.
type Code struct {
	Name   string
	Status int
}

// Codes are the codes by their numbers.
var Codes = []Code{
	{"ok", 200}, {"canceled", 499}, {"unknown", 500}, {"invalid_argument", 400}, {"deadline_exceeded", 504},
	{"not_found", 404}, {"already_exists", 409}, {"permission_denied", 403}, {"resource_exhausted", 429},
	{"failed_precondition", 400}, {"aborted", 409}, {"out_of_range", 400}, {"unimplemented", 501},
	{"internal", 500}, {"unavailable", 503}, {"data_loss", 500}, {"unauthenticated", 401},
}

// CodeOf returns the code with a number, or unknown.
func CodeOf(number int32) Code {
	if number < 0 || int(number) >= len(Codes) {
		number = 2
	}
	return Codes[number]
}

// check returns an error for a response that is no message and no failure of the protocol.
func (r RPC) check(res Response) error {
	if res.Word == Omitted {
		return nil // duplicates learn that it was not kept
	}
	media := field(res, "h", "Content-Type")
	media, _, _ = strings.Cut(media, ";")
	if r.Protocol == OverConnect {
		return r.checkConnect(res, media)
	}
	bare := strings.TrimSuffix(r.Media(), "+proto")
	if media != r.Media() && media != bare || res.Status != 200 {
		return fmt.Errorf("a response of %s has the status 200 and the Content-Type %s", r.Protocol, r.Media())
	}
	if r.Protocol == OverGRPC {
		if field(res, "t", "Grpc-Status") == "" && (len(res.Body) > 0 || field(res, "h", "Grpc-Status") == "") {
			return errors.New("a response of gRPC has Grpc-Status in its trailers")
		}
		return nil
	}
	body, end := res.Body, byte(flagWebEnd)
	switch r.Protocol {
	case ConnectStream:
		end = flagStreamEnd
	case OverWebText:
		var err error
		if body, err = base64.StdEncoding.DecodeString(string(body)); err != nil {
			return err
		}
	}
	return ends(body, end)
}

// checkConnect is check for a unary call of Connect.
func (r RPC) checkConnect(res Response, media string) error {
	var e struct{ Code string }
	switch {
	case res.Status == 200 && media == r.Media() && (r.Codec != "json" || json.Valid(res.Body) || field(res, "h", "Content-Encoding") != ""):
		return nil
	case res.Status >= 400 && media == "application/json" && json.Unmarshal(res.Body, &e) == nil &&
		slices.ContainsFunc(Codes, func(c Code) bool { return c.Name == e.Code && c.Status == res.Status }):
		return nil
	}
	return fmt.Errorf("a response of Connect has the status 200 and a message of the type %s, or an error in JSON with a code and its status", r.Media())
}

// ends returns an error for a body whose last frame, and no other, has the flag of the end.
func ends(body []byte, end byte) error {
	for len(body) >= 5 {
		flags, n := body[0], int64(binary.BigEndian.Uint32(body[1:]))
		if n > int64(len(body)-5) || flags&^(end|compressed) != 0 {
			break
		}
		body = body[5+n:]
		if flags&end != 0 {
			if len(body) == 0 {
				return nil
			}
			break
		}
	}
	return errors.New("the body has no messages in frames, or none that ends them")
}

// field returns the first value of a field.
func field(res Response, kind, name string) string {
	for _, f := range res.Fields {
		if f.Kind == kind && strings.EqualFold(strings.TrimPrefix(f.Name, TrailerPrefix), name) {
			return f.Value
		}
	}
	return ""
}

// TrailerPrefix is in front of the name of a trailer that was not announced, as net/http has it.
const TrailerPrefix = "Trailer:"

// Encode returns the recorded form of a reply.
func (r Reply) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%d -\n", ResponseMagic, r.Status)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "h %s: %s\n", name, r.Header[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Trailer)) {
		fmt.Fprintf(&b, "t %s%s: %s\n", TrailerPrefix, name, r.Trailer[name])
	}
	b.WriteByte('\n')
	b.Write(r.Body)
	return b.Bytes()
}
