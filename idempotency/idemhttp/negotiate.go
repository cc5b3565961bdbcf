package idemhttp

import (
	"net/http"
	"slices"
	"strings"
)

// What a client asks for in its headers, and a handler would answer in a way that cannot be recorded.

// forHandler returns a request as its handler gets it: without the client's deadline, and with the codings alone that the
// Middleware reads. The deadline is the client's, and ends no attempt, as the client's connection does not: a handler that
// it interrupts in the middle would execute again. A gateway of gRPC reads Grpc-Timeout of any request. The end of a
// call in another coding would be unknown.
func forHandler(r *http.Request) *http.Request {
	h := r.Header.Clone()
	h.Del("Grpc-Timeout")
	h.Del("Connect-Timeout-Ms")
	if framesOf(protocolOfCall(r)) != nil { // otherwise the end is in the trailers or the status
		for _, name := range []string{"Grpc-Accept-Encoding", "Connect-Accept-Encoding"} {
			readable(h, name)
		}
	}
	if otherCoding(r) != "" { // which no message has: see compresses
		h.Del("Grpc-Encoding")
		h.Del("Connect-Content-Encoding")
	}
	if protocolOfCall(r) == connectUnary {
		readable(h, "Accept-Encoding")
	}
	r.Header = h
	return r
}

// readable removes the codings from a header that the Middleware does not read.
func readable(h http.Header, name string) {
	if len(h[name]) == 0 {
		return
	}
	all := slices.DeleteFunc(strings.Split(strings.Join(h[name], ","), ","), func(one string) bool {
		coding, _, _ := strings.Cut(one, ";")
		return !reads(strings.ToLower(strings.TrimSpace(coding)))
	})
	if len(all) == 0 {
		all = []string{"identity"}
	}
	h.Set(name, strings.TrimSpace(strings.Join(all, ",")))
}

// reads reports whether the Middleware reads a coding.
func reads(coding string) bool { return coding == "" || coding == "identity" || coding == "gzip" }

// otherCoding returns the coding that a call names for its messages, if its response would end in that and it is not read, or "":
// a server answers in the coding of the request.
func otherCoding(r *http.Request) string {
	coding := strings.ToLower(r.Header.Get("Grpc-Encoding") + r.Header.Get("Connect-Content-Encoding")) // it has one of them
	if framesOf(protocolOfCall(r)) == nil || reads(coding) {
		return ""
	}
	return coding
}

// compresses reports whether a call compresses a message of that body. It may name a coding and use it for no message,
// as for short ones.
func compresses(r *http.Request, body []byte) bool {
	f := framesOf(protocolOfCall(r))
	f.mark = flagCompressed
	f.write(body)
	return f.last != nil
}
