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
