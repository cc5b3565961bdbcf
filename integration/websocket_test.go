package integration

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// WebSockets of both well-known libraries work behind the Middleware in a request with a key. The one
// writes status 101 before it hijacks the connection, the other hijacks first.
func TestWebSockets(t *testing.T) {
	t.Parallel()
	mw := middleware(t, stores(t)[0], &idemhttp.Options{Methods: []string{http.MethodGet}})
	for name, accept := range map[string]http.HandlerFunc{
		"coder": func(w http.ResponseWriter, r *http.Request) {
			conn, err := coder.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.CloseNow() }()
			kind, text, err := conn.Read(idemhttp.Client(r.Context()))
			if err == nil {
				err = conn.Write(r.Context(), kind, text)
			}
			require.NoError(t, err)
		},
		"gorilla": func(w http.ResponseWriter, r *http.Request) {
			conn, err := new(gorilla.Upgrader).Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			kind, text, err := conn.ReadMessage()
			if err == nil {
				err = conn.WriteMessage(kind, text)
			}
			require.NoError(t, err)
		},
	} {
		srv := httptest.NewServer(mw(accept))
		t.Cleanup(srv.Close)
		conn, resp, err := gorilla.DefaultDialer.DialContext(ctxT(t), "ws"+strings.TrimPrefix(srv.URL, "http"), http.Header{"Idempotency-Key": {name}})
		require.NoError(t, err, name)
		require.NoError(t, resp.Body.Close())
		require.NoError(t, conn.WriteMessage(gorilla.TextMessage, []byte("hello")))
		_, text, err := conn.ReadMessage()
		require.NoError(t, err, name)
		require.Equal(t, "hello", string(text), name)
		require.NoError(t, conn.Close())
	}
}
