package idemhttp

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// messagesOf returns the content of a call of gRPC, gRPC-Web or Connect to a path: its messages, however
// they were encoded and framed. At most room bytes are decompressed. It returns an error for messages
// that cannot be compared; beside rpc.ErrByBytes there is a content.
func messagesOf(r *http.Request, m media, path string, body []byte, room int64) (content, error) {
	messages, json, err := messagesIn(r, m, body, room)
	if err != nil {
		return content{}, err
	}
	sum, err := rpc.Request(path, json, messages)
	return content{formMessages, sum}, err
}

// messagesIn returns the messages in the body of a call, and whether they are JSON.
func messagesIn(r *http.Request, m media, body []byte, room int64) (messages [][]byte, json bool, err error) {
	by, separator := callOf(r, m.name), "+"
	coding := r.Header.Get("Grpc-Encoding") + r.Header.Get("Connect-Content-Encoding") // it has one of them
	if by == connectUnary {
		separator, coding = "/", r.Header.Get("Content-Encoding")
	}
	_, codec, named := strings.Cut(m.name, separator)
	if named && codec != "proto" && codec != "json" {
		return nil, false, fmt.Errorf("the codec %q is neither proto nor json", codec)
	}
	if by == connectUnary {
		body, err = plainMessage(new(gzip.Reader), body, coding, coding != "" && coding != "identity", room)
		return [][]byte{body}, codec == "json", err
	}
	if by == grpcWebText {
		if body, err = base64.StdEncoding.DecodeString(string(body)); err != nil {
			return nil, false, err
		}
	}
	messages, err = unframe(body, coding, room)
	return messages, codec == "json", err
}

// unframe returns the messages in the frames of a body.
func unframe(body []byte, coding string, room int64) (messages [][]byte, err error) {
	z := new(gzip.Reader) // one for all: a client can send many small messages
	for len(body) > 0 {
		if len(body) < 5 || body[0]&^flagCompressed != 0 {
			return nil, errors.New("the body has something else than messages")
		}
		n := int64(binary.BigEndian.Uint32(body[1:]))
		if n > int64(len(body)-5) {
			return nil, errors.New("the body ends in a message")
		}
		m, err := plainMessage(z, body[5:5+n], coding, body[0]&flagCompressed != 0, room)
		if err != nil {
			return nil, err
		}
		if body[0]&flagCompressed != 0 {
			room -= int64(len(m))
		}
		messages, body = append(messages, m), body[5+n:]
	}
	return messages, nil
}

// plainMessage returns a message that is not compressed any more, and has at most room bytes then.
func plainMessage(z *gzip.Reader, m []byte, coding string, compressed bool, room int64) ([]byte, error) {
	if !compressed {
		return m, nil
	}
	if coding != "gzip" {
		return nil, fmt.Errorf("a message is compressed by %q, not by gzip", coding)
	}
	plain, ok := unpackBy(z, m, room)
	if !ok {
		return nil, errors.New("a message cannot be decompressed, or is too large then")
	}
	return plain, nil
}
