package etcdfake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A760: etcd's client may never return from Close.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, hangs := time.Now(), make(chan struct{})
		bounded(func() { <-hangs })
		require.Equal(t, closeTimeout, time.Since(begun))
		close(hangs)
		bounded(func() {})
		require.Equal(t, closeTimeout, time.Since(begun))
	})
}

// A761: a test that ended while a client was away ended the whole test binary: goroutines of etcd's client were left in its
// bubble.
func TestEndsWhileAClientIsAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*Client){"cut": (*Client).Cut, "refused": (*Client).Refuse, "stalled": (*Client).Stall} {
		for _, unread := range []bool{false, true} {
			for _, closed := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					Test(t, func(t *testing.T, s *Server) {
						c := s.NewClient()
						events := c.Watch(context.Background(), "a") //nolint:usetesting // it outlives the test's
						put := func() {
							_, err := s.Client().Put(t.Context(), "a", "")
							require.NoError(t, err)
							synctest.Wait()
						}
						put()
						<-events
						if unread {
							put()
						}
						fault(c)
						synctest.Wait()
						if closed {
							_ = c.Close()
						}
					})
				})
			}
		}
	}
}

// A764: nothing arrives on a broken connection, although messages flow.
func TestNothingArrivesOnABrokenConnection(t *testing.T) {
	t.Parallel()
	Test(t, func(t *testing.T, s *Server) {
		c := s.NewClient()
		conn, err := c.enter(t.Context())
		require.NoError(t, err)
		w := waiter{client: c, ctx: t.Context(), broken: conn.broken}
		require.NoError(t, w.wait(c.link.gate()))
		require.True(t, s.travel(0, c.link, conn))
		c.Stall()
		c.Cut()
		require.Equal(t, errUnavailable, w.wait(c.link.gate()))
		require.Equal(t, errUnavailable, w.wait(nil))
		require.False(t, s.travel(0, c.link, conn))
		c.Heal()
		require.Equal(t, errUnavailable, w.wait(c.link.gate()))
		require.False(t, s.travel(0, c.link, conn))
	})
}
