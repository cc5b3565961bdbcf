package limithttp_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
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

// TestHalfClosedUpgrade: a ReverseProxy behind a Middleware, whose Transport is limited, passes on that one side has sent all,
// and what the other side sends after that, under its permits (A304 in internal/proof/tested-failures.md): it closed the connection.
func TestHalfClosedUpgrade(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	sem, err := concurrency.NewSemaphore(in.sess, "up", 1, nil)
	require.NoError(t, err)
	up := make(chan *net.TCPConn, 1)
	backend, _ := downstream(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _ := upgrade(t, w)
		up <- conn.(*net.TCPConn)
	})
	to, err := url.Parse(backend)
	require.NoError(t, err)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	out, err := limithttp.Transport(concurrency.Single(sem), options(), base)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = out
	s := in.serve(options(), proxy.ServeHTTP)
	for _, first := range []string{"the client", "the backend"} {
		dialed, err := net.Dial("tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		client := dialed.(*net.TCPConn)
		t.Cleanup(func() { client.Close() })
		require.NoError(t, client.SetDeadline(time.Now().Add(soon)))
		_, err = fmt.Fprint(client, "GET /ws HTTP/1.1\r\nHost: x\r\nTenant: acme\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		require.NoError(t, err)
		r := bufio.NewReader(client)
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		own := testkit.Got(t, up, "the backend has its connection")
		t.Cleanup(func() { own.Close() })
		from, to, reads, answers := client, own, io.Reader(own), io.Reader(r)
		if first == "the backend" {
			from, to, reads, answers = own, client, r, own
		}
		for _, side := range []struct {
			sends *net.TCPConn
			reads io.Reader
		}{{from, reads}, {to, answers}} {
			_, err = io.WriteString(side.sends, "all")
			require.NoError(t, err, first)
			require.NoError(t, side.sends.CloseWrite())
			got, err := io.ReadAll(side.reads)
			require.NoError(t, err, first)
			require.Equal(t, "all", string(got), first)
			if side.sends == from {
				st, err := sem.Status(ctxT(t))
				require.NoError(t, err)
				require.Len(t, st.Holders, 1, "the other side still sends")
			}
		}
		in.holders("acme", 0)
		holder, err := sem.Acquire(ctxT(t))
		require.NoError(t, err, first)
		require.NoError(t, holder.Release(ctxT(t)))
	}
}
