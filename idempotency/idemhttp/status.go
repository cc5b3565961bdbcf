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
	reply := forms.RPC{Protocol: protocolNames[by]}.Failure(st.Proto())
	h := w.Header()
	for name, value := range reply.Header {
		h.Set(name, value)
	}
	if by != connectUnary {
		h.Set("Content-Type", mediaType(r.Header))
	}
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body)
}
