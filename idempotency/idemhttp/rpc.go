package idemhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// RPC protocols have their own form of failure behind a status of HTTP, mostly 200. The Middleware reads
// it where the protocol puts it:
//
//	gRPC                    Grpc-Status in the trailers; in the headers if there is no body
//	gRPC-Web                Grpc-Status in the last frame of the body; in the headers if there is no body
//	Connect, a stream       an error in the last message of the body
//	Connect, a unary call   the status of HTTP; "code" in the body distinguishes calls of one status
//
// Sources: PROTOCOL-HTTP2.md and PROTOCOL-WEB.md of gRPC, and the reference of the Connect protocol.

// protocol is how the end of a response is to be read.
type protocol int

const (
	plainHTTP protocol = iota
	grpcTrailers
	grpcWeb
	grpcWebText // in base64
	connectStream
	connectUnary
)

// protocolOf returns the protocol of a response with these headers to the request r. A response without a
// type to a call of gRPC or a stream of Connect is taken for one without an end.
func protocolOf(r *http.Request, head http.Header) protocol {
	media := mediaType(head)
	switch p := named(media); {
	case p != plainHTTP:
		return p
	case media == "application/json" && protocolOfCall(r) == connectUnary:
		return connectUnary // a response with another type is a message, not an error
	case media == "":
		return named(mediaType(r.Header))
	}
	return plainHTTP
}

// protocolOfCall returns the protocol of a request.
func protocolOfCall(r *http.Request) protocol { return callOf(r, mediaType(r.Header)) }

// callOf returns the protocol of a request with a body of that media type.
func callOf(r *http.Request, media string) protocol {
	switch p := named(media); {
	case p != plainHTTP:
		return p
	case media == "application/proto", r.Header.Get("Connect-Protocol-Version") == "1",
		r.Header.Get("Connect-Timeout-Ms") != "", // the version is optional
		r.Method == http.MethodGet && r.URL.Query().Get("connect") == "v1":
		return connectUnary
	}
	return plainHTTP
}

// named returns the protocol that a media type names.
func named(media string) protocol {
	is := func(kind string) bool { return media == kind || strings.HasPrefix(media, kind+"+") }
	switch {
	case is("application/grpc"):
		return grpcTrailers
	case is("application/grpc-web"):
		return grpcWeb
	case is("application/grpc-web-text"):
		return grpcWebText
	case strings.HasPrefix(media, "application/connect+"):
		return connectStream
	}
	return plainHTTP
}

// mediaType returns the type without its parameters, which may be malformed.
func mediaType(h http.Header) string {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// judge returns how the response has ended. It is called when the handler has returned.
func (rec *recorder) judge() ending {
	switch {
	case rec.hijacked:
		return ending{kind: middleware.Success, status: http.StatusSwitchingProtocols, text: "the handler has hijacked the connection"}
	case rec.cut():
		return ending{kind: middleware.Broken, status: rec.status, text: "the response is shorter than its Content-Length"}
	case rec.fell():
		return ending{kind: middleware.Broken, status: rec.status, text: fmt.Sprintf("the handler has answered %d, and then %d", rec.status, rec.failed)}
	case saysUnknown(rec.head):
		return passedOn(rec.status)
	case rec.stopped:
		return ending{kind: middleware.Broken, status: 500, text: "the handler has returned without a whole response, and its context had ended"}
	case rec.silent && (rec.protocol == plainHTTP || rec.protocol == connectUnary) && isCall(rec.r):
		return ending{kind: middleware.Broken, status: 500, text: "the handler has written no response to a call"}
	case rec.protocol != plainHTTP && rec.protocol != connectUnary && rec.status > 200 && rec.status < 400:
		return ending{kind: middleware.Failure, status: 500, text: fmt.Sprintf("the handler has answered an RPC with status %d", rec.status)}
	case rec.status == http.StatusConflict && rec.head.Get("Retry-After") != "":
		return ending{kind: middleware.Interrupted, status: rec.status, text: "the handler has answered 409 with Retry-After"}
	case rec.protocol == plainHTTP && rec.aborted():
		return ofCode(10)
	case rec.status != http.StatusOK && rec.protocol != connectUnary:
		return rec.withoutCode()
	}
	switch rec.protocol {
	case grpcTrailers, grpcWeb, grpcWebText:
		return rec.judgeGRPC()
	case connectStream:
		return rec.judgeConnectStream()
	case connectUnary:
		return rec.judgeConnectUnary()
	}
	return rec.withoutCode()
}

// judgeGRPC reads Grpc-Status. In the headers it counts only without a body, as for clients.
func (rec *recorder) judgeGRPC() ending {
	places := []http.Header{trailers(rec.header, rec.head)}
	switch {
	case rec.written == 0:
		places = append(places, rec.head)
	case rec.frames != nil:
		if end := rec.noEnd(); end != nil {
			return *end
		}
		places = append(places, fieldsOf(rec.frames.last))
	}
	if end := statusIn(places...); end != nil {
		return *end
	}
	return ending{kind: middleware.Broken, status: 500, text: "the response has no grpc-status"}
}

// statusIn returns the ending that Grpc-Status stands for, or nil if none of the headers has it.
func statusIn(places ...http.Header) *ending {
	all := fieldIn(places, "Grpc-Status")
	if len(all) == 0 {
		return nil
	}
	end := ending{kind: middleware.Failure, status: 500, text: fmt.Sprintf("the handler has answered grpc-status %q", all)}
	if code, err := strconv.ParseUint(all[0], 10, 32); err == nil && len(all) == 1 {
		end = ofCode(uint32(code))
		if fieldsSayUnknown(places) {
			end = passedOn(end.status)
		}
	}
	return &end
}

// fieldIn returns the values of a field, each once: more than one of Grpc-Status contradict each other.
func fieldIn(places []http.Header, field string) (all []string) {
	for _, h := range places {
		for name, values := range h {
			if plain(name) == field {
				all = append(all, values...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// judgeConnectStream reads the end-of-stream message.
func (rec *recorder) judgeConnectStream() ending {
	if end := rec.noEnd(); end != nil {
		return *end
	}
	return endOfStream(rec.frames.last)
}

// endOfStream returns the ending that an end-of-stream message of Connect stands for.
func endOfStream(message []byte) ending {
	var last struct{ Error *connectError }
	if err := json.Unmarshal(message, &last); err != nil {
		return ending{kind: middleware.Failure, status: 500, text: "the last message of the response is not JSON"}
	}
	if last.Error == nil {
		return ofCode(0)
	}
	return last.Error.end()
}

// noEnd returns the ending of a body whose last frame was not written or cannot be read.
func (rec *recorder) noEnd() *ending {
	err := rec.frames.end(rec.head)
	switch {
	case err == nil:
		return nil
	case rec.r.Context().Err() != nil && rec.frames.last == nil: // the handler may have stopped for that reason
		return &ending{kind: middleware.Interrupted, status: 499, text: "the client has left, and the response has no last frame"}
	case rec.frames.last == nil:
		return &ending{kind: middleware.Broken, status: 500, text: err.Error()}
	}
	rec.unread = err // the client may read a success there
	return &ending{kind: middleware.Broken, status: 500, text: err.Error()}
}

// judgeConnectUnary reads the status, and the code of an error.
func (rec *recorder) judgeConnectUnary() ending {
	if e, ok := rec.errorOfConnect(); ok {
		return e.end()
	}
	return rec.withoutCode()
}

// begin keeps the beginning of a body that is not buffered, more of which is given, for errorOfConnect.
func (rec *recorder) begin(more []byte) {
	const enough = 64 // bytes: the longest code and what is in front of it
	if rec.status >= 400 && len(rec.begun) < enough {
		rec.begun = append(append(rec.begun, rec.body[:min(len(rec.body), enough)]...), more[:min(len(more), enough)]...)
	}
}

// errorOfConnect returns the error of Connect that is the body, if it is one. Of a body that is not buffered it has the code alone,
// if that is the first member, where the libraries of Connect write it.
func (rec *recorder) errorOfConnect() (e connectError, ok bool) {
	if rec.status >= 400 {
		e = connectErrorIn(rec.begun, plainBody(rec.head, rec.body))
	}
	return e, e.Code != ""
}

// connectErrorIn is errorOfConnect for a body that is not compressed; begun is the beginning of one that is not buffered.
func connectErrorIn(begun, body []byte) (e connectError) {
	if begun != nil {
		e.Code, _ = firstCode(begun).(string)
		return e
	}
	if json.Unmarshal(body, &e) != nil {
		return connectError{}
	}
	return e
}

// firstCode returns the member "code" at the beginning of an object in JSON, or nil.
func firstCode(begun []byte) json.Token {
	d := json.NewDecoder(bytes.NewReader(begun))
	for _, want := range []json.Token{json.Delim('{'), "code"} {
		if is, err := d.Token(); err != nil || is != want {
			return nil
		}
	}
	is, _ := d.Token()
	return is
}

// plainBody returns the body of an error with these headers, not compressed.
func plainBody(h http.Header, body []byte) []byte {
	if gzipped(h) {
		body, _ = unpack(body, maxLast)
	}
	return body
}

// aborted reports whether the response is Connect's or grpc-gateway's error for a conflict with another call. A client that
// sends JSON without the optional Connect-Protocol-Version, such as curl, does not say that its request is a
// call, nor does that of a gateway; of all codes, this is the one that ends in another way than its status.
func (rec *recorder) aborted() bool {
	if rec.status != http.StatusConflict || mediaType(rec.head) != "application/json" {
		return false
	}
	e, ok := rec.errorOfConnect()
	return ok && e.Code == forms.Codes[10].Name || numberOfStatus(plainBody(rec.head, rec.body)) == 10
}

// withoutCode returns the ending of a response that has no code of RPC. To a call it is the answer of something in front of
// the procedures, such as a router or a check of the codec: its client reads a code from the status. 404 means that this
// release does not have the procedure.
func (rec *recorder) withoutCode() ending {
	if rec.status >= 400 {
		if end := ofGateway(rec.status, plainBody(rec.head, rec.body)); end != nil {
			return *end
		}
	}
	if rec.protocol == connectUnary && bytes.HasPrefix(rec.begun, []byte("{")) { // the code may be in what is not buffered
		return ofStatus(rec.status)
	}
	return endWithoutCode(rec.r, rec.head, rec.status)
}

// endWithoutCode is withoutCode for the status and the headers of a response.
func endWithoutCode(r *http.Request, head http.Header, status int) ending {
	switch {
	case protocolOfCall(r) == plainHTTP, status == http.StatusOK && !foreign(r, head), status != http.StatusNotFound && !surelyCall(r):
		return ofStatus(status)
	}
	end := ofCode(codeOfStatus(status))
	end.text = fmt.Sprintf("the handler has answered a call with status %d, type %q and no code: its client reads %s", status, mediaType(head), forms.Codes[end.code].Name)
	return end
}

// surelyCall reports whether more than the type application/proto says that a request is a call: a service of REST may take
// that, too, whose 201, 202 and 204 are successes.
func surelyCall(r *http.Request) bool {
	return mediaType(r.Header) != "application/proto" && protocolOfCall(r) != plainHTTP || callOf(r, "") != plainHTTP || rpc.Registered(sent(r).Path)
}

// foreign reports whether a response with these headers is not of the type that the client of the call reads.
func foreign(r *http.Request, head http.Header) bool {
	asked, media := mediaType(r.Header), mediaType(head)
	if asked == "" || media == "" {
		return false
	}
	return named(media) == plainHTTP && media != asked
}

// codeOfStatus returns the code that a client of gRPC, gRPC-Web or Connect reads from a status of HTTP, if the response has
// none. See http-grpc-status-mapping.md of gRPC.
func codeOfStatus(status int) uint32 {
	switch status {
	case http.StatusBadRequest:
		return 13
	case http.StatusUnauthorized:
		return 16
	case http.StatusForbidden:
		return 7
	case http.StatusNotFound:
		return 12
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 14
	}
	return 2
}

// isCall reports whether a request is a call of RPC, also if only its path says so.
func isCall(r *http.Request) bool {
	return protocolOfCall(r) != plainHTTP || rpc.Registered(sent(r).Path)
}

// connectError is the JSON of an error of Connect.
type connectError struct {
	Code    string          `json:"code"`
	Message string          `json:"message,omitempty"`
	Details []connectDetail `json:"details,omitempty"`
}

// connectDetail is a message of protobuf: its name, and its bytes in base64 without padding.
type connectDetail struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

func (e *connectError) end() ending {
	code := slices.IndexFunc(forms.Codes, func(c forms.Code) bool { return c.Name == e.Code })
	if code <= 0 {
		code = 2 // unknown, as Connect has it
	}
	end := ofCode(uint32(code))
	if e.saysUnknown() {
		end = passedOn(end.status)
	}
	return end
}

// ofCode returns the ending that a code stands for.
func ofCode(code uint32) ending {
	c := forms.Code{Name: fmt.Sprint("code ", code), Status: 500}
	if code < uint32(len(forms.Codes)) {
		c = forms.Codes[code]
	}
	return ending{kind: middleware.EndOfCode(code), status: c.Status, text: "the handler has answered " + c.Name, code: code}
}

// fieldsOf returns the fields of a last frame of gRPC-Web: lines as in HTTP/1.1, with names in lower case.
func fieldsOf(frame []byte) http.Header {
	h := http.Header{}
	for line := range strings.Lines(string(frame)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(textproto.TrimString(name), textproto.TrimString(value))
		}
	}
	return h
}
