package idemhttp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// writeStatus writes an answer of the Middleware's own as an error of the protocol of the call.
func writeStatus(w http.ResponseWriter, r *http.Request, by protocol, st *rpc.Status) {
	h := w.Header()
	h.Set("Content-Type", mediaType(r.Header))
	status, body := http.StatusOK, []byte(nil)
	switch by {
	case grpcTrailers: // without a body, headers take the place of trailers
		for _, f := range grpcFields(st) {
			h.Set(f[0], f[1])
		}
	case grpcWeb, grpcWebText:
		// In a frame, not in headers: of those a browser shows a page of another origin only what CORS exposes.
		var lines strings.Builder
		for _, f := range grpcFields(st) {
			lines.WriteString(strings.ToLower(f[0]) + ": " + f[1] + "\r\n")
		}
		if body = frame(flagWebEnd, lines.String()); by == grpcWebText {
			body = []byte(base64.StdEncoding.EncodeToString(body))
		}
	case connectStream:
		body = frame(flagConnectEnd, `{"error":`+connectJSON(st)+`}`)
	default:
		h.Set("Content-Type", "application/json")
		status, body = rpcCodes[st.Code()].status, []byte(connectJSON(st))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// grpcFields returns the fields of gRPC for a status.
func grpcFields(st *rpc.Status) [][2]string {
	return [][2]string{
		{"Grpc-Status", fmt.Sprint(uint32(st.Code()))},
		{"Grpc-Message", percent(st.Message())},
		{"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(rpc.Encode(st))},
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

// connectJSON returns the error of Connect for a status.
func connectJSON(st *rpc.Status) string {
	e := connectError{Code: rpcCodes[st.Code()].name, Message: st.Message()}
	for _, d := range st.Proto().GetDetails() {
		_, name, _ := strings.Cut(d.GetTypeUrl(), "/")
		e.Details = append(e.Details, connectDetail{name, base64.RawStdEncoding.EncodeToString(d.GetValue())})
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(b)
}
