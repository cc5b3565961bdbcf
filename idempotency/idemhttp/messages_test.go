package idemhttp

import (
	"cmp"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// registered adds a service to the registry, as generated code does: /messages.v1.Payments/Pay takes a Struct.
var registered = sync.OnceValue(func() error {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("messages_test.proto"), Package: proto.String("messages.v1"), Dependency: []string{"google/protobuf/struct.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Payments"), Method: []*descriptorpb.MethodDescriptorProto{{
			Name: proto.String("Pay"), InputType: proto.String(".google.protobuf.Struct"), OutputType: proto.String(".google.protobuf.Struct"),
		}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		return err
	}
	return protoregistry.GlobalFiles.RegisterFile(file)
})

// callTo returns a call with a body.
func callTo(path, media, coding, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	r.Header.Set("Content-Type", media)
	if strings.HasPrefix(media, "application/json") {
		r.Header.Set("Connect-Protocol-Version", "1")
	}
	if coding != "" {
		name := map[protocol]string{connectUnary: "Content-Encoding", connectStream: "Connect-Content-Encoding"}[protocolOfCall(r)]
		r.Header.Set(cmp.Or(name, "Grpc-Encoding"), coding)
	}
	return r
}

// one encodes a map with one entry: the encodings of several after each other are that of one map.
func one(t *testing.T, name string, v *structpb.Value) string {
	t.Helper()
	b, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{name: v}})
	require.NoError(t, err)
	return string(b)
}

// known is the path of a method in the registry, behind a prefix.
const known = "/api/messages.v1.Payments/Pay"

// Q13: the order in which a client encodes the entries of a map, and white space in JSON, make no other
// request of a call, and no other key of a call within an attempt. A call within an attempt whose messages
// cannot be compared is refused before it is sent (Q13 in internal/proof/tested-failures.md).
func TestMessagesInOtherBytes(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	entry := func(name string, v float64) string { return one(t, name, structpb.NewNumberValue(v)) }
	plain := func(s string) string { return s }
	framed := func(s string) string { return string(frame(0, s)) }
	both := func(s string) string { return framed(s) + framed(s) }
	packed := func(s string) string { return string(frame(flagCompressed, zipped(t, s))) }
	text := func(s string) string { return base64.StdEncoding.EncodeToString(frame(0, s)) }
	for _, x := range []struct {
		name, media, coding string
		form                func(string) string
		same                bool
	}{
		{"Connect", "application/proto", "", plain, true},
		{"Connect, JSON", "application/json; charset=utf-8", "", plain, true},
		{"Connect, gzip", "application/proto", "gzip", func(s string) string { return zipped(t, s) }, true},
		{"Connect, another coding", "application/proto", "br", plain, false},
		{"stream of Connect", "application/connect+proto", "", both, true},
		{"stream of Connect, gzip", "application/connect+json", "gzip", packed, true},
		{"gRPC", "application/grpc", "", framed, true},
		{"gRPC, gzip", "application/grpc+proto", "gzip", packed, true},
		{"gRPC, another coding", "application/grpc+proto", "zstd", packed, false},
		{"gRPC, JSON", "application/grpc+json", "", framed, true},
		{"gRPC, another codec", "application/grpc+thrift", "", framed, false},
		{"gRPC-Web", "application/grpc-web+proto", "", framed, true},
		{"gRPC-Web in base64", "application/grpc-web-text", "", text, true},
		{"gRPC-Web, not in base64", "application/grpc-web-text", "", framed, false},
		{"half a frame", "application/grpc", "", func(s string) string { return framed(s) + "\x00\x00" }, false},
		{"half a message", "application/grpc", "", func(s string) string { return framed(s)[:len(s)+4] }, false},
		{"no messages", "application/grpc", "", func(s string) string { return framed("\xff" + s) }, false},
	} {
		ab, ba, other := entry("a", 1)+entry("b", 2), entry("b", 2)+entry("a", 1), entry("a", 1)+entry("b", 3)
		if strings.Contains(x.media, "json") {
			ab, ba, other = `{"a":1, "b":2}`, `{"b":2,"a":1}`, `{"a":1,"b":3}`
		}
		payload := func(path, message string) idempotency.Fingerprint {
			p, err := Content(callTo(path, x.media, x.coding, x.form(message)), []byte(x.form(message)))
			require.NoError(t, err)
			sum, ok := p.(idempotency.Fingerprint)
			require.True(t, ok)
			return sum
		}
		first := payload(known, ab)
		require.Equal(t, x.same, first == payload(known, ba), x.name)
		require.Equal(t, first, payload(known, ab), x.name)
		require.NotEqual(t, first, payload(known, other), x.name)
		require.NotEqual(t, first, payload("/v2"+known, ab), x.name)
		plainJSON := strings.HasPrefix(x.media, "application/json")
		const unknown = "/messages.v1.Payments/Refund"
		require.Equal(t, plainJSON, payload(unknown, ab) == payload(unknown, ba), x.name)

		key := func(path, message string) (string, error) {
			return describeCall(callTo(path, x.media, x.coding, x.form(message)))
		}
		text, err := key(known, ab)
		if !x.same {
			require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey", x.name)
			continue
		}
		require.NoError(t, err, x.name)
		again, err := key(known, ba)
		require.NoError(t, err, x.name)
		require.Equal(t, text, again, x.name)
		another, err := key(known, other)
		require.NoError(t, err, x.name)
		require.NotEqual(t, text, another, x.name)
		_, err = key(unknown, ab)
		require.Equal(t, plainJSON, err == nil, x.name)
	}
}

// A body that only looks like messages, and is not sent as a call of RPC, is compared as bytes.
func TestMessagesOfNoCall(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	v := structpb.NewBoolValue(true)
	ab, ba := one(t, "a", v)+one(t, "b", v), one(t, "b", v)+one(t, "a", v)
	for media, same := range map[string]bool{"application/proto": true, "application/x-protobuf": false} {
		first, err := describeCall(callTo(known, media, "", ab))
		require.NoError(t, err)
		second, err := describeCall(callTo(known, media, "", ba))
		require.NoError(t, err)
		require.Equal(t, same, first == second, media)
	}
	both := string(frame(0, ab)) + string(frame(0, ab))
	first, err := describeCall(callTo(known, "application/grpc", "", both))
	require.NoError(t, err)
	second, err := describeCall(callTo(known, "application/grpc", "", string(frame(0, ab+ab))))
	require.NoError(t, err)
	require.NotEqual(t, first, second, "two messages are not one")
}

// What a few compressed bytes become is bounded, for all messages of a call together. Beyond that a call is
// compared as it was sent.
func TestMessagesThatAreLargeWhenDecompressed(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	message := one(t, "a", structpb.NewStringValue(strings.Repeat("x", mostUnpacked/2)))
	packed := string(frame(flagCompressed, zipped(t, message)))
	r := callTo(known, "application/grpc", "gzip", packed+packed)
	m, all := mediaOf(r.Header), int64(2*len(message))
	_, err := messagesOf(r, m, known, []byte(packed+packed), all)
	require.NoError(t, err)
	_, err = messagesOf(r, m, known, []byte(packed+packed), all-1)
	require.ErrorContains(t, err, "too large")
	whole, err := Content(r, []byte(packed+packed))
	require.NoError(t, err)
	require.Equal(t, fingerprint(r, m, content{formBytes, []byte(packed + packed)}), whole)
	_, err = describeCall(r)
	require.NoError(t, err, "a program's own request is read up to %d bytes", mostCompared)
}

// Data without end of types that this program does not know is compared byte by byte by a server, and
// refused within an attempt.
func TestMessagesComparedByBytes(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	body := string(frame(0, strings.Repeat("\x28\x01", 1<<20)))
	r := callTo(known, "application/grpc", "", body)
	_, err := Content(r, []byte(body))
	require.NoError(t, err)
	_, err = describeCall(r)
	require.ErrorIs(t, err, rpc.ErrByBytes)
}

// A111: a call of Connect is the same one, compressed or not. A client compresses messages from a size on, and
// space in JSON makes them longer.
func TestUnaryMessageCompressedOrNot(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	sum := func(coding, body string) any {
		print, err := Content(callTo(known, "application/proto", coding, body), []byte(body))
		require.NoError(t, err)
		return print
	}
	message, other := one(t, "a", structpb.NewStringValue("1")), one(t, "a", structpb.NewStringValue("2"))
	require.Equal(t, sum("", message), sum("gzip", zipped(t, message)))
	require.NotEqual(t, sum("", other), sum("gzip", zipped(t, message)))
}

// A109: many small messages that are compressed cost no new decompressor each, of 40 KiB.
func TestManyCompressedMessages(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	body := strings.Repeat(string(frame(flagCompressed, zipped(t, ""))), 2000)
	r := callTo(known, "application/grpc", "gzip", body)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := messagesIn(r, mediaOf(r.Header), []byte(body), mostUnpacked)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "of 56 KB")
}

// A multipart body that cannot be compared by its parts has another boundary in each attempt: it is refused.
func TestMultipartOfNoParts(t *testing.T) {
	t.Parallel()
	_, err := describeCall(callTo("/upload", "multipart/form-data; boundary=b", "", "no parts"))
	require.ErrorContains(t, err, "multipart/form-data")
	require.ErrorContains(t, err, "WithKey with an Attempt.ChildKey")
	_, err = describeCall(callTo("/upload", "multipart/form-data; boundary=b", "", "--b\r\n\r\ntext\r\n--b--\r\n"))
	require.NoError(t, err)
}
