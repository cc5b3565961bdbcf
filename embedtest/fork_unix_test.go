//go:build unix

package embedtest

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that starts processes has, for a moment, children with copies of its files, and so of the
// locks of a member that has just been stopped. The member starts again all the same.
func TestRestartWhileProcessesStart(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, nil)
	put(t, c.Client(), "k", "kept")
	stop := make(chan struct{})
	var forks sync.WaitGroup
	defer forks.Wait()
	defer close(stop)
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, exec.Command("true").Run())
				}
			}
		})
	}
	for range 5 {
		require.NoError(t, c.Restart(within(t, patience), 0))
	}
	require.Equal(t, "kept", value(t, c, "k"))
}
