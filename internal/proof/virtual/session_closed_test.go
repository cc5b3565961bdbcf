package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// The end of a session is reported once, with whether it had a lease: between a loss and the new lease no
// SessionRecovered follows.
func TestClosedSessionIsReported(t *testing.T) {
	for name, lost := range map[string]bool{"with a lease": false, "without a lease": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				events := make(chan observe.Event, 100)
				d.open(concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
					if _, renewed := e.(observe.LeaseRenewed); !renewed {
						events <- e
					}
				}}}})
				time.Sleep(time.Second)
				if lost {
					d.client.Refuse()
					time.Sleep(4 * ttl)
					require.IsType(t, observe.SessionLost{}, came(t, events, "the loss"))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = d.session.Close(ctx) // the lease is left to expire
				closed := came(t, events, "the end").(observe.SessionClosed)
				require.Equal(t, observe.SessionClosed{Namespace: "test", Owner: closed.Owner, Lost: lost}, closed)
				require.Empty(t, events)
			})
		})
	}
}
