package idemhttp

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// frame returns a frame of gRPC-Web or of a Connect stream.
func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(s))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// The last frame is found however the body is cut into parts, in base64, too.
func TestLastFrame(t *testing.T) {
	t.Parallel()
	const status = "grpc-status: 14\r\ngrpc-message: down\r\n"
	body := append(append(frame(0, ""), frame(0, string(make([]byte, 300)))...), frame(flagWebEnd, status)...)
	parts := append([]byte(base64.StdEncoding.EncodeToString(body[:304])), base64.StdEncoding.EncodeToString(body[304:])...)
	for size := 1; size <= len(body); size++ {
		for p, b := range map[protocol][]byte{grpcWeb: body, grpcWebText: parts} {
			f := framesOf(p)
			for rest := b; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				f.write(rest[:min(size, len(rest))])
			}
			require.NoError(t, f.end(nil), size)
			require.Equal(t, status, string(f.last), size)
		}
	}
}

func TestLastFrameThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const end = flagConnectEnd
	gz, br := http.Header{"Connect-Content-Encoding": {"gzip"}}, http.Header{"Connect-Content-Encoding": {"br"}}
	for name, c := range map[string]struct {
		body []byte
		head http.Header
		last string
		err  string
	}{
		"empty":                 {nil, nil, "", "has no last frame"},
		"half a head":           {frame(end, "{}")[:3], nil, "", "has no last frame"},
		"half a frame":          {frame(end, "{}")[:6], nil, "", "has no last frame"},
		"others alone":          {frame(0, "{}"), nil, "", "has no last frame"},
		"another protocol's":    {frame(flagWebEnd, "{}"), nil, "", "has no last frame"},
		"empty frame":           {frame(end, ""), nil, "", ""},
		"whole":                 {frame(end, "{}"), nil, "{}", ""},
		"more behind it":        {append(frame(end, "{}"), frame(end, "[]")...), nil, "{}", ""},
		"gzip":                  {frame(end|flagCompressed, zipped(t, "{}")), gz, "{}", ""},
		"gzip, cut":             {frame(end|flagCompressed, zipped(t, "{}")[:12]), gz, "", "cannot be decompressed"},
		"gzip, not said":        {frame(end|flagCompressed, zipped(t, "{}")), nil, "", `compressed by ""`},
		"another coding":        {frame(end|flagCompressed, "xx"), br, "", `compressed by "br"`},
		"not compressed, coded": {frame(end, "{}"), br, "{}", ""},
		"too long":              {frame(end, string(make([]byte, maxLast+1))), nil, "", "more than 65536 bytes"},
	} {
		f := framesOf(connectStream)
		f.write(c.body)
		err := f.end(c.head)
		if c.err == "" {
			require.NoError(t, err, name)
			require.Equal(t, c.last, string(f.last), name)
		} else {
			require.ErrorContains(t, err, c.err, name)
		}
		require.LessOrEqual(t, cap(f.last), 2*maxLast, name)
	}
}
