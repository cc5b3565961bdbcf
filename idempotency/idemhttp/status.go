package idemhttp

import (
	"net/http"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// entryOf returns the entry that records name for a request: "http", or how the client of a call of RPC reads its
// response, which an operator has to give it.
func entryOf(r *http.Request) string {
	by := protocolOfCall(r)
	if by == plainHTTP {
		return forms.HTTP
	}
	return forms.RPC{Protocol: protocolNames[by], Codec: codecOf(by, mediaType(r.Header))}.Entry()
}

// byEntry returns the options by which the record of a request says what replays it.
func byEntry(r *http.Request) []idempotency.Option {
	return []idempotency.Option{idempotency.Via(entryOf(r)), idempotency.Returns(returnsOf(r))}
}

// returnsOf returns the type of the message that a call of RPC returns, if it is known.
func returnsOf(r *http.Request) string {
	if protocolOfCall(r) == plainHTTP {
		return ""
	}
	return rpc.Returns(sent(r).Path)
}

var protocolNames = map[protocol]forms.Protocol{
	grpcTrailers: forms.OverGRPC, grpcWeb: forms.OverWeb, grpcWebText: forms.OverWebText,
	connectUnary: forms.OverConnect, connectStream: forms.ConnectStream,
}

// codecOf returns the codec of a call's messages: "" is protobuf, and "other" one that is not known here.
func codecOf(by protocol, media string) string {
	separator := "+"
	if by == connectUnary {
		separator = "/"
	}
	switch _, codec, _ := strings.Cut(media, separator); codec {
	case "", "proto":
		return ""
	case "json":
		return "json"
	}
	return "other"
}

// writeStatus writes an answer of the Middleware's own as an error of the protocol of the call.
func writeStatus(w http.ResponseWriter, r *http.Request, by protocol, st *rpc.Status) {
	reply := replyTo(r, by, forms.RPC{Protocol: protocolNames[by]}.Failure(st.Proto()))
	h := w.Header()
	for name, value := range reply.Header {
		h.Set(name, value)
	}
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body)
}

// replyTo returns the response to a call in that protocol with the type that its client has sent.
func replyTo(r *http.Request, by protocol, reply forms.Reply) forms.Reply {
	if by != connectUnary {
		reply.Header["Content-Type"] = mediaType(r.Header)
	}
	return reply
}

// recorded returns the recorded form of a response that has ended in that way. Of a call of RPC that has failed, and
// whose body was left out, it is a failure with the same code: the code may be in the body, and a duplicate must not
// be answered that the call was done.
func recorded(r *http.Request, res *Response, end ending) []byte {
	if by := protocolOfCall(r); by != plainHTTP && res.Omitted && end.code != 0 {
		return replyTo(r, by, forms.RPC{Protocol: protocolNames[by]}.Failure(forms.StatusOf(end.code, forms.FailureOmitted))).Encode()
	}
	return res.Encode()
}
