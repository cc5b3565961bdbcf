package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A638: NewSession whose ctx has no deadline, with endpoints that are wrong, logs that it waits, after ten seconds and then each
// minute. It was silent for ever.
func TestSilentEtcdIsSaid(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, server *etcdfake.Server) {
		core, logs := observer.New(zap.WarnLevel)
		client := server.NewClient()
		client.Refuse()
		opened := make(chan error, 1)
		var s *concurrency.Session
		go func() {
			var err error
			s, err = concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{TTL: ttl, Margin: margin, Prefix: prefix, Logger: zap.New(core)})
			opened <- err
		}()
		for after, lines := range []int{0, 1, 1, 2} { // at 9, 39, 69 and 99 s
			time.Sleep(map[bool]time.Duration{true: 9 * time.Second, false: 30 * time.Second}[after == 0])
			require.Equal(t, lines, logs.FilterMessage("no session yet: etcd does not answer").Len(), "%d", after)
		}
		client.Heal()
		require.NoError(t, <-opened)
		time.Sleep(2 * time.Minute)
		require.Equal(t, 2, logs.FilterMessage("no session yet: etcd does not answer").Len(), "it is open")
		require.NoError(t, s.Close(t.Context()))
	})
}
