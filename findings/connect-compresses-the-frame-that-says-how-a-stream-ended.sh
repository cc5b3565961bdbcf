#!/usr/bin/env bash
# Guess: the last frame of a stream of connect-go, which has the error or the trailers, is plain JSON or plain trailers: a proxy, a
#   recorder or a middleware reads from it whether the call has failed. Compression is for messages, and pays for large ones.
# Really: if the client accepts a coding, and its own clients accept gzip, the last frame is compressed as well, even when it is
#   shorter than its compressed form: its flags are 3 in the Connect protocol and 0x81 in gRPC-Web, so a reader that compares with 2
#   or 0x80 does not find the end. A handler with WithCompressMinBytes sends it plain if it is shorter.
# Versions: connectrpc.com/connect v1.21.1
# Source: connect's protocol_connect.go (MarshalEndStream), protocol_grpc.go (MarshalWebTrailers), envelope.go (Write).
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
cat > main.go <<'G'
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type msg = wrapperspb.StringValue

const path = "/example.Service/List"

func main() {
	var says []string
	for _, least := range []int{0, 4096} {
		h := connect.NewServerStreamHandler(path, func(_ context.Context, _ *connect.Request[msg], s *connect.ServerStream[msg]) error {
			_ = s.Send(&msg{}) // without a message gRPC-Web has its trailers in the header
			return connect.NewError(connect.CodeAborted, errors.New("held"))
		}, connect.WithCompressMinBytes(least))
		s := httptest.NewServer(h)
		for _, kind := range []string{"application/connect+proto", "application/grpc-web+proto"} {
			for _, accept := range []string{"", "gzip"} {
				says = append(says, fmt.Sprintf("least %d, %s, accepts %q: last frame %#x", least, kind, accept, last(s.URL, kind, accept)))
			}
		}
		s.Close()
	}
	got := strings.Join(says, "\n")
	fmt.Println(got)
	if got != os.Args[1] {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}

// last returns the flags of the last frame of a call that fails.
func last(url, kind, accept string) byte {
	req, _ := http.NewRequest("POST", url+path, bytes.NewReader(make([]byte, 5))) // an empty message
	req.Header.Set("Content-Type", kind)
	if accept != "" {
		req.Header.Set("Connect-Accept-Encoding", accept)
		req.Header.Set("Grpc-Accept-Encoding", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	flags := byte(0xff)
	for len(body) >= 5 {
		flags = body[0]
		body = body[5+binary.BigEndian.Uint32(body[1:5]):]
	}
	return flags
}
G
go mod init probe >/dev/null 2>&1
go get connectrpc.com/connect@v1.21.1 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . 'least 0, application/connect+proto, accepts "": last frame 0x2
least 0, application/connect+proto, accepts "gzip": last frame 0x3
least 0, application/grpc-web+proto, accepts "": last frame 0x80
least 0, application/grpc-web+proto, accepts "gzip": last frame 0x81
least 4096, application/connect+proto, accepts "": last frame 0x2
least 4096, application/connect+proto, accepts "gzip": last frame 0x2
least 4096, application/grpc-web+proto, accepts "": last frame 0x80
least 4096, application/grpc-web+proto, accepts "gzip": last frame 0x80' 2>/dev/null
