package limithttp_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUpgradeClosedBeneath: the permit of a hijacked connection ends when the connection of the server is closed, which
// NetConn has returned, over TCP and TLS, before and after the handler returns; and not before (A168 in
// internal/proof/tested-failures.md).
func TestUpgradeClosedBeneath(t *testing.T) {
	t.Parallel()
	type beneath interface{ NetConn() net.Conn }
	for _, c := range []struct{ tls, late bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("TLS=%v after the handler=%v", c.tls, c.late), func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			conns := make(chan net.Conn, 1)
			s := in.serve(options(), func(w http.ResponseWriter, _ *http.Request) {
				conn, _ := upgrade(t, w)
				if !c.late {
					conn = conn.(beneath).NetConn()
				}
				conns <- conn
			}, func(s *httptest.Server) {
				if c.tls {
					s.TLS = &tls.Config{}
				}
			})
			address := s.Listener.Addr().String()
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			if c.tls {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			}
			t.Cleanup(func() { conn.Close() })
			_, err = fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nTenant: acme\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			own := <-conns
			time.Sleep(300 * time.Millisecond) // it looks more than once
			in.holders("acme", 1)
			if c.late {
				own = own.(beneath).NetConn()
			}
			require.NoError(t, own.Close())
			in.holders("acme", 0)
		})
	}
}
