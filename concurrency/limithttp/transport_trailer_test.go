package limithttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransportKeepsTrailers: a response without a body holds no permit, and its trailers arrive as without a Transport.
// They were dropped (A470 in internal/proof/tested-failures.md), and with them a status of gRPC: over HTTP/2, a server of
// net/http that writes no body and sets trailers sends a length of 0, and the trailers later.
func TestTransportKeepsTrailers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		status int
		sends  bool // the server of net/http sends trailers then
	}{
		"a length of 0": {http.MethodPost, http.StatusOK, true},
		"204":           {http.MethodDelete, http.StatusNoContent, true},
		"304":           {http.MethodGet, http.StatusNotModified, true},
		"HEAD":          {http.MethodHead, http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			released := make(chan struct{}, 2)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.status == http.StatusOK {
					w.Header().Set("Content-Length", "0")
				}
				w.WriteHeader(c.status)
				w.(http.Flusher).Flush()
				<-released
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "5")
			}))
			s.EnableHTTP2 = true
			s.StartTLS()
			t.Cleanup(s.Close)
			for _, client := range []*http.Client{s.Client(), in.calling(options(), s.Client().Transport)} {
				resp, err := client.Do(call(t, ctxT(t), c.method, s.URL, "acme", nil))
				require.NoError(t, err)
				in.holders("acme", 0)
				released <- struct{}{}
				left, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Empty(t, left)
				require.Equal(t, c.sends, resp.Trailer.Get("Grpc-Status") == "5", "%v", resp.Trailer)
				require.NoError(t, resp.Body.Close())
			}
		})
	}
}
