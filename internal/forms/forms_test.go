package forms

import (
	"bytes"
	"compress/gzip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A result fits the entry that replays it, and no other, and a client can read it (U1 and D21 in
// internal/proof/tested-failures.md).
func TestCheck(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("body"))
	require.NoError(t, z.Close())
	receipt, err := anypb.New(wrapperspb.String("receipt"))
	require.NoError(t, err)
	message, err := proto.Marshal(receipt)
	require.NoError(t, err)
	failed, err := proto.Marshal(&spb.Status{Code: 9, Message: "declined"})
	require.NoError(t, err)
	none, err := proto.Marshal(&spb.Status{Message: "no code"})
	require.NoError(t, err)
	results := map[string]struct {
		bytes []byte
		fits  []string
	}{
		"JSON":                      {[]byte(`{"charge":7}`), []string{Do}},
		"JSON with a line break":    {[]byte("{\"charge\":7}\n"), []string{Do}},
		"a response":                {[]byte("idemhttp 1 201 -\nh Location: /orders/1\n\nbody"), []string{HTTP}},
		"a response without a body": {[]byte("idemhttp 1 204 -\n\n"), []string{HTTP}},
		"an interim response":       {[]byte("idemhttp 1 103 -\n\n"), nil},
		"a body of no content":      {[]byte("idemhttp 1 204 -\n\nx"), nil},
		"a body, not modified":      {[]byte("idemhttp 1 304 -\n\nx"), nil},
		"another protocol":          {[]byte("idemhttp 1 101 -\n\n"), nil},
		"a hijacked connection":     {[]byte("idemhttp 1 0 hijacked\n\n"), []string{HTTP}},
		"gzip":                      {append([]byte("idemhttp 1 200 -\nh Content-Encoding: gzip\n\n"), packed.Bytes()...), []string{HTTP}},
		"gzip cut off":              {append([]byte("idemhttp 1 200 -\nh Content-Encoding: gzip\n\n"), packed.Bytes()[:packed.Len()-1]...), nil},
		"plain, not gzip":           {[]byte("idemhttp 1 200 -\nh content-encoding: GZIP\n\nbody"), nil},
		"gzip without a body":       {[]byte("idemhttp 1 200 -\nh Content-Encoding: gzip\n\n"), []string{HTTP}},
		"omitted, of gzip":          {[]byte("idemhttp 1 200 omitted\nh Content-Encoding: gzip\n\n"), []string{HTTP}},
		"another coding":            {[]byte("idemhttp 1 200 -\nh Content-Encoding: br\n\nbody"), []string{HTTP}},
		"two codings":               {[]byte("idemhttp 1 200 -\nh Content-Encoding: gzip\nh Content-Encoding: br\n\nbody"), []string{HTTP}},
		"a response cut off":        {[]byte("idemhttp 1 201 -\nh Location: /orders/1\n"), nil},
		"a later form of HTTP":      {[]byte("idemhttp 2 201 -\n\n"), nil},
		"a message":                 {Call{Body: message}.Encode(), []string{GRPC}},
		"a message without a type":  {Call{}.Encode(), nil},
		"no message of protobuf":    {Call{Body: []byte("\xff")}.Encode(), nil},
		"a status":                  {Call{Code: 9, Body: failed}.Encode(), []string{GRPC}},
		"a status without a code":   {Call{Code: 9, Body: none}.Encode(), nil},
		"a message that is omitted": {Call{Word: Omitted}.Encode(), []string{GRPC}},
		"a bare message":            {message, nil},
		"a message that is no Any":  {Call{Body: []byte("\n\x02r1")}.Encode(), nil},
		"nothing":                   {nil, nil},
	}
	for name, r := range results {
		for _, entry := range []string{Do, HTTP, GRPC} {
			if err := Check(entry, "", r.bytes); slices.Contains(r.fits, entry) {
				require.NoError(t, err, "%s for %s", name, entry)
			} else {
				require.Error(t, err, "%s for %s", name, entry)
			}
		}
		require.NoError(t, Check("", "", r.bytes), "the program's own form is not known")
		require.NoError(t, Check("kafka", "", r.bytes), "nor is that of another entry")
	}
}

// A header that is not in the form of one is refused, and no other is lost by it (U8 in internal/proof/tested-failures.md).
func TestHeader(t *testing.T) {
	t.Parallel()
	h, err := Header([]string{"location: /orders/1", "Link: <a>; rel=next", "LINK:<b>", "X-Empty:"})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"Location": {"/orders/1"}, "Link": {"<a>; rel=next", "<b>"}, "X-Empty": {""}}, h)
	for _, wrong := range []string{"", "Location", ": /orders/1", " continued", " A: b", "A : b"} {
		_, err := Header([]string{"A: b", wrong, "Location: /orders/1"})
		require.ErrorContains(t, err, "Name: value", "%q", wrong)
	}
}

// V31: of a call of RPC behind idemhttp, a message and a failure are in the form that clients of its protocol read, and
// the forms of others are refused. (integration.TestOperatorFinishesAnyCall has the clients.)
func TestCheckOfRPC(t *testing.T) {
	t.Parallel()
	entries := []string{HTTP + "/grpc+other", HTTP}
	for _, p := range protocols {
		entries = append(entries, RPC{p, ""}.Entry(), RPC{p, "json"}.Entry())
	}
	for _, entry := range entries[2:] {
		by, ok := RPCOf(entry)
		require.True(t, ok)
		require.Equal(t, entry, by.Entry())
		for kind, reply := range map[string]Reply{"message": by.Message([]byte(`"r1"`)), "failure": by.Failure(StatusOf(9, "déclined\n"))} {
			for _, other := range entries {
				err := Check(other, "", reply.Encode())
				known, rpc := RPCOf(other)
				failed := kind == "failure" && rpc && known.Protocol == OverConnect && by.Protocol == OverConnect // in JSON in any case
				if other == entry || !rpc || failed {
					require.NoError(t, err, "%s of %s for %s", kind, entry, other)
				} else {
					require.Error(t, err, "%s of %s for %s", kind, entry, other)
				}
			}
		}
		for _, bad := range []string{"200 -\nh Content-Type: application/json\n\n{}", "201 -\n\n", "409 -\nh Content-Type: application/json\n\n{\"code\":\"not_found\"}", "200 -\nh Content-Type: " + by.Media() + "\n\nno frames"} {
			if entry == "http/connect+json" && bad[:3] == "200" && bad[len(bad)-2:] == "{}" || entry == "http/connect" && bad[len(bad)-6:] == "frames" {
				continue // that is a message
			}
			require.Error(t, Check(entry, "", []byte(ResponseMagic+bad)), "%s for %s", bad, entry)
		}
		require.NoError(t, Check(entry, "", []byte(ResponseMagic+"200 omitted\n\n")))
	}
	_, ok := RPCOf("http/grpc+other")
	require.False(t, ok)
	require.Equal(t, "unknown", CodeOf(99).Name)
}

// V32: a message of another type than the call returns is refused.
func TestCheckOfAType(t *testing.T) {
	t.Parallel()
	receipt, err := anypb.New(wrapperspb.Int64(7))
	require.NoError(t, err)
	b, err := proto.Marshal(receipt)
	require.NoError(t, err)
	call := Call{Body: b}.Encode()
	require.NoError(t, Check(GRPC, "", call))
	require.NoError(t, Check(GRPC, "google.protobuf.Int64Value", call))
	require.ErrorContains(t, Check(GRPC, "google.protobuf.StringValue", call), "returns a google.protobuf.StringValue")
}
