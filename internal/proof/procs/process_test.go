package procs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// soon bounds what should happen at once.
const soon = 30 * time.Second

func run(t *testing.T, as string, args ...string) *procs.Process {
	t.Helper()
	p, err := procs.Run(procs.Command{Name: as, Path: os.Args[0], Args: args, Env: role(as), Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func ticks(t *testing.T, p *procs.Process) {
	t.Helper()
	before := lines(p)
	require.Eventually(t, func() bool { return lines(p) > before }, soon, 5*time.Millisecond)
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	p := run(t, "obedient")
	ticks(t, p)
	for range 3 {
		require.NoError(t, p.Pause())
		require.True(t, p.Paused())
		before := lines(p)
		time.Sleep(20 * time.Millisecond) // it would have written twenty lines
		require.Equal(t, before, lines(p))
		require.NoError(t, p.Resume())
		require.False(t, p.Paused())
		ticks(t, p)
	}
	require.NoError(t, p.Pause())
	p.Kill()
	require.True(t, p.Ended(), "a stopped process can be killed")
	require.Error(t, p.Err())
	require.Error(t, p.Pause())
	require.NoError(t, p.Resume())
}

func TestQuit(t *testing.T) {
	t.Parallel()
	p := run(t, "obedient")
	ticks(t, p)
	require.NoError(t, p.Pause())
	require.NoError(t, p.Quit(soon), "it is continued, reads the end of its input and ends")
	require.NoError(t, p.Err())
	deaf := run(t, "deaf")
	require.ErrorContains(t, deaf.Quit(50*time.Millisecond), "was killed")
	require.True(t, deaf.Ended())
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	_, err := procs.Run(procs.Command{Name: "nothing", Path: "/nonexistent", Log: filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "start nothing")
}

// A parent that ends, in whatever way, leaves no process behind: not even a stopped one.
func TestChildrenDieWithTheirParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills them")
	}
	parent := run(t, "parent", filepath.Join(t.TempDir(), "child"))
	var child int
	require.Eventually(t, func() (ok bool) {
		id, err := strconv.Atoi(strings.TrimSpace(parent.Tail(100)))
		child = id
		return err == nil
	}, soon, 5*time.Millisecond)
	alive := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err == nil && !strings.Contains(string(stat), ") Z")
	}
	require.True(t, alive())
	parent.Kill()
	require.Eventually(t, func() bool { return !alive() }, soon, 5*time.Millisecond)
}
