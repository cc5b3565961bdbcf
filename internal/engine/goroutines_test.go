package engine

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A828: the last goroutine of a session reports to a hook that never returns while Close waits for it. It called the hook
// itself, and Close hung.
func TestReportWhileTheSessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := goroutines{returned: make(chan struct{})}
		ending, stuck, reported := make(chan struct{}), make(chan struct{}), false
		require.True(t, g.Background(func() {
			<-ending
			g.Report(func() { <-stuck; reported = true })
		}))
		var returned <-chan struct{}
		go func() { returned = g.end() }()
		synctest.Wait()
		require.False(t, g.Background(func() {}))
		close(ending)
		synctest.Wait()
		require.NotNil(t, returned, "the end waits for the hook")
		select {
		case <-returned:
			t.Error("the hook has not returned")
		default:
		}
		close(stuck)
		<-returned
		require.True(t, reported)
		require.False(t, g.Callback(func() {}))
	})
}
