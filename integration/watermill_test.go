package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// V25: a message that no delivery can end differently leaves the queue: an error that comes at each delivery would
// stop the partition behind it.
func TestMessagesThatNoDeliveryCanEnd(t *testing.T) {
	t.Parallel()
	sess, err := concurrency.NewSession(t.Context(), embedtest.Shared(t).NewClient(t, nil).Client, "hopeless", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, sess.Close(context.WithoutCancel(t.Context()))) }()
	st, err := idempotency.NewStore(sess, "orders", &idempotency.Options{SingleTenant: true, MaxResult: 100, CacheBytes: -1})
	require.NoError(t, err)
	large := func(*message.Message) ([]*message.Message, error) {
		return message.Messages{message.NewMessage("r", make([]byte, 200))}, nil
	}
	deliver := func(id, payload string) error {
		_, err := once(st, "orders")(large)(message.NewMessage(id, []byte(payload)))
		return err
	}
	require.NoError(t, deliver("1", "order 1"))
	for range 2 {
		require.True(t, hopeless(deliver("1", "order 1")), "its result was not kept")
		require.True(t, hopeless(deliver("1", "order 2")), "another message has its ID")
		require.True(t, hopeless(deliver(strings.Repeat("x", 300), "order 3")), "its ID is no key")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	msg := message.NewMessage("4", nil)
	msg.SetContext(gone)
	_, err = once(st, "orders")(large)(msg)
	require.Error(t, err)
	require.False(t, hopeless(err), "the consumer stops")
}
