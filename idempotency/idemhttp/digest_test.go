package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func digest(b string) string {
	sum := sha256.Sum256([]byte(b))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// I16: a digest (RFC 9530) of a representation that a replay does not have is not replayed, be it
// unpacked or without its body; nor is a type guessed that the first response did not have.
func TestDigestsOfAReplay(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, "<html>hello")
	require.NoError(t, err)
	require.NoError(t, z.Close())
	packed := b.String()
	names := []string{"Repr-Digest", "Content-Digest", "Digest"}
	s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Encoding", "gzip")
		for _, name := range names {
			h.Set(name, digest(packed))
		}
		body := packed
		if r.URL.Path == "/large" {
			body = strings.Repeat("x", 2<<20)
		}
		h.Set("Trailer", "Repr-Digest")
		_, _ = io.WriteString(w, body)
		h.Set(http.TrailerPrefix+"Content-Digest", digest(packed))
	})
	takes := header("Accept-Encoding", "gzip")
	first := s.post("/", "k", "body", takes)
	require.False(t, first.replayed())
	again := s.post("/", "k", "body", takes)
	require.True(t, again.replayed())
	require.Equal(t, packed, again.body)
	require.Equal(t, digest(packed), again.Header.Get("Content-Digest"))
	require.Equal(t, digest(packed), again.Trailer.Get("Repr-Digest"))
	require.Equal(t, digest(packed), again.Trailer.Get("Content-Digest"))

	s.post("/large", "k", "body", takes)
	for name, re := range map[string]reply{
		"unpacked": s.post("/", "k", "body", header("Accept-Encoding", "identity")),
		"omitted":  s.post("/large", "k", "body", takes),
	} {
		require.True(t, re.replayed(), name)
		require.Empty(t, re.Header.Get("Content-Encoding"), name)
		for _, digest := range names {
			require.Empty(t, re.Header.Get(digest)+re.Trailer.Get(digest), name+" "+digest)
		}
		require.NotContains(t, re.Header, "Content-Type", name)
		if name == "unpacked" {
			require.Equal(t, "<html>hello", re.body)
		}
	}
}

// What was flushed without a type has none in a replay.
func TestTypeOfAnEarlyFlush(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for name, h := range map[string]http.HandlerFunc{
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "<html>")
		},
		"framed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Transfer-Encoding", "identity")
			_, _ = io.WriteString(w, "<html>")
		},
		"coded": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "none-of-ours")
			_, _ = io.WriteString(w, "<html>")
		},
	} {
		first, again := twice(t, in.serve(nil, h), name)
		require.NotContains(t, first.Header, "Content-Type", name)
		require.NotContains(t, again.Header, "Content-Type", name)
		require.Equal(t, first.body, again.body, name)
	}
}
