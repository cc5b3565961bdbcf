package embedtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Close of etcd's client hangs for ever if watches are refused at the same time.
func TestCloseWhileWatchesAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it tries a hundred times: 4 s")
	}
	t.Parallel()
	c := Start(t, nil)
	if c.External() {
		t.Skip("authentication is the external cluster's own affair")
	}
	ctx := within(t, 3*patience)
	require.NoError(t, c.AddUser(ctx, "app", "secret", "/mine/"))
	require.NoError(t, c.EnableAuth(ctx, "root", "secret"))
	// Each try checks a password, which is slow under the race detector.
	first := time.Now()
	for hung, try := false, 0; !hung && try < 100 && time.Since(first) < 10*time.Second; try++ {
		cl, err := c.Dial(ctx, &ClientOptions{Username: "app", Password: "secret"})
		require.NoError(t, err)
		cl.Watch(ctx, "/mine/")
		for range 20 {
			go cl.Watch(ctx, "/of-others")
		}
		time.Sleep(time.Duration(try%10) * 300 * time.Microsecond)
		begun := time.Now()
		closed := make(chan struct{})
		go func() { _ = cl.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(patience):
			require.FailNow(t, "Close hangs")
		}
		hung = time.Since(begun) >= closeTimeout
		if hung {
			t.Logf("etcd's client hung at try %d", try+1)
		}
	}
}
