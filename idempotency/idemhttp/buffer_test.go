package idemhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A103: the buffer of a body is used for another request only if no handler has the body: a handler that
// reads late reads what its client has sent, whatever came meanwhile.
func TestBufferOfABodyInUse(t *testing.T) {
	t.Parallel()
	const size = 128 << 10
	begun, read := make(chan struct{}), make(chan struct{})
	s := shared(t).instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			close(begun)
			<-read
		}
		_, _ = io.Copy(w, r.Body)
	})
	body := func(c string) string { return strings.Repeat(c, size) }
	first := s.post("/", "k", body("a"))
	late := s.later("/late", "late", body("b"))
	got(t, begun, "the handler")
	for range 10 {
		re := s.post("/", "k", body("a"))
		require.True(t, re.replayed())
		require.Equal(t, first.body, re.body)
		require.Equal(t, http.StatusUnprocessableEntity, s.post("/", "k", body("c")).StatusCode)
	}
	close(read)
	require.Equal(t, body("b"), got(t, late, "the response").body)
}
