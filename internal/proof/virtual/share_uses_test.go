package virtual

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// What uses a share for longer than a call of a handler takes: hijacked connections and bodies of
// responses, on real servers of net/http in the bubble.

// sharing is a process without others that has a share of a total.
func sharing(d *desk, total int) (*service, limithttp.Options) {
	d.t.Helper()
	lim, err := concurrency.NewKeyedLimiter(d.session, "tenants", total, &concurrency.KeyedLimiterOptions{Total: total})
	require.NoError(d.t, err)
	s := &service{desk: d, lim: lim, total: lim.Total()}
	return s, limithttp.Options{
		Key:  func(r *http.Request) (string, bool) { return r.Header.Get("Tenant"), true },
		Wait: time.Second, Outage: limithttp.Share, OnOutage: func(err error) { s.away.Store(err != nil) },
	}
}

// listen serves a handler until the test ends.
func listen(t *testing.T, h http.Handler) *bufconn.Listener {
	t.Helper()
	lis, server := bufconn.Listen(1<<16), &http.Server{Handler: h}
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(func() { _ = server.Close() })
	return lis
}

// upgrading is a process with a share of two, whose handlers of the path /ws hijack their connections.
// dial opens one, and returns the handler's end.
func upgrading(t *testing.T, d *desk) (s *service, dial func() net.Conn) {
	t.Helper()
	s, o := sharing(d, 2)
	mw, err := limithttp.Middleware(s.lim, o)
	require.NoError(t, err)
	conns := make(chan net.Conn, 2)
	s.handler = mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		conns <- conn
	}))
	lis := listen(t, s.handler)
	return s, func() net.Conn {
		t.Helper()
		conn, err := lis.DialContext(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nTenant: acme\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		return came(t, conns, "the connection is the handler's")
	}
}

// running requires the weight of what uses the share without a permit.
func (s *service) running(want int) {
	s.t.Helper()
	synctest.Wait()
	require.Equal(s.t, want, s.share().Running)
}

// holders requires the number of permits of the tenant "acme".
func (s *service) holders(want int) {
	s.t.Helper()
	synctest.Wait()
	st, err := s.lim.Key("acme").Status(s.t.Context())
	require.NoError(s.t, err)
	require.Len(s.t, st.Holders, want)
}

// healed has etcd answer again, until the session and the work under the share have had their answers.
func (s *service) healed() {
	s.client.Heal()
	time.Sleep(10 * time.Second)
}

// TestShareOfAConnection: a hijacked connection that began under a share uses it until it is closed,
// or until it has a permit; the permit is then held as long.
func TestShareOfAConnection(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s, dial := upgrading(t, on[0])
		require.Equal(t, http.StatusOK, s.get(t.Context(), "acme"))
		time.Sleep(time.Minute)
		s.cutOff()
		first, second := dial(), dial()
		s.running(2)
		time.Sleep(10 * time.Minute)
		s.running(2)
		require.Equal(t, http.StatusServiceUnavailable, s.get(t.Context(), "acme"))
		require.NoError(t, first.Close())
		s.running(1)
		require.Equal(t, http.StatusOK, s.get(t.Context(), "acme"))
		s.healed()
		s.running(0)
		time.Sleep(time.Hour)
		s.holders(1)
		require.NoError(t, second.Close())
		s.holders(0)
	})
}

// TestShareCountsConnectionsFromBefore: a hijacked connection whose permit was lost in an outage uses
// the share until it is closed.
func TestShareCountsConnectionsFromBefore(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s, dial := upgrading(t, on[0])
		require.Equal(t, http.StatusOK, s.get(t.Context(), "acme"))
		time.Sleep(time.Minute)
		first, second := dial(), dial()
		s.holders(2)
		s.cutOff()
		require.Zero(t, s.session.Lease())
		for range 8 {
			require.Equal(t, http.StatusServiceUnavailable, s.get(t.Context(), "acme"), "both connections are open")
		}
		require.NoError(t, first.Close())
		synctest.Wait()
		require.Equal(t, http.StatusOK, s.get(t.Context(), "acme"))
		require.NoError(t, second.Close())
	})
}

// TestShareOfATransport: an outgoing call that began under a share uses it until its body is closed.
func TestShareOfATransport(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s, o := sharing(on[0], 1)
		lis := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "done") }))
		base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) }}
		defer base.CloseIdleConnections()
		rt, err := limithttp.Transport(s.lim, o, base)
		require.NoError(t, err)
		do := func() (*http.Response, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://downstream/", nil)
			require.NoError(t, err)
			r.Header.Set("Tenant", "acme")
			return rt.RoundTrip(r)
		}
		resp, err := do()
		require.NoError(t, err)
		s.holders(1)
		require.NoError(t, resp.Body.Close())
		s.holders(0)
		time.Sleep(time.Minute)
		s.client.Refuse()
		time.Sleep(time.Minute)

		resp, err = do()
		require.NoError(t, err)
		s.running(1)
		_, err = do()
		require.ErrorIs(t, err, concurrency.ErrUnavailable)
		s.healed()
		s.running(0)
		s.holders(1)
		require.NoError(t, resp.Body.Close())
		s.holders(0)
		resp, err = do()
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}
