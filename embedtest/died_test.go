package embedtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// diesChild returns a command that runs TestDiesChild of this binary with temporary files
// below tmp, and dies in the given way.
func diesChild(t *testing.T, tmp, how string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiesChild$", "-test.v")
	cmd.Env = append(os.Environ(), "EMBEDTEST_TEST_DIES="+how, "TMPDIR="+tmp, "TMP="+tmp)
	return cmd
}

func entries(t *testing.T, dir string) (names []string) {
	es, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

// A process that dies cannot remove its data. The next process removes it, and keeps the
// data of a running process.
func TestDataOfADeadProcessIsRemoved(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	tmp := t.TempDir()

	live := diesChild(t, tmp, "waits")
	in, err := live.StdinPipe()
	require.NoError(t, err)
	out, err := live.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, live.Start())
	lines := bufio.NewReader(out)
	for line := ""; line != "waits\n"; {
		line, err = lines.ReadString('\n')
		require.NoError(t, err, line)
	}
	kept := entries(t, tmp)
	require.NotEmpty(t, kept)

	for _, how := range []string{"panics", "exits"} {
		before := len(entries(t, tmp))
		text, err := diesChild(t, tmp, how).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(text), how)
		require.Greater(t, len(entries(t, tmp)), min(before, len(kept)), "a dead process has left data")
	}
	text, err := diesChild(t, tmp, "ends").CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Equal(t, kept, entries(t, tmp), "the data of the live process, and nothing else")

	require.NoError(t, in.Close())
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, live.Wait(), "%s", rest)
	require.Empty(t, entries(t, tmp))
}

// A sweep does not remove directories that are created while it runs.
func TestSweepLeavesDirectoriesInUse(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	dead, err := newDataDirIn(tmp)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dead.path(), "member", "wal"), 0o700))
	dead.close() // as the end of a process does
	foreign := filepath.Join(tmp, "embedtest-of-others")
	require.NoError(t, os.MkdirAll(filepath.Join(foreign, "member"), 0o700))

	var owners, sweepers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					sweepDataDirs(tmp)
				}
			}
		})
		owners.Go(func() {
			for range 50 {
				d, err := newDataDirIn(tmp)
				if !assert.NoError(t, err) {
					return
				}
				file := filepath.Join(d.path(), "data")
				assert.NoError(t, os.WriteFile(file, nil, 0o600))
				runtime.Gosched()
				assert.FileExists(t, file)
				assert.NoError(t, d.remove())
			}
		})
	}
	owners.Wait()
	close(done)
	sweepers.Wait()
	sweepDataDirs(tmp)
	require.Equal(t, []string{"embedtest-of-others"}, entries(t, tmp), "without a lock file it is not one of ours")
	require.DirExists(t, filepath.Join(foreign, "member"))
}

// TestDiesChild is the body of the process of diesChild.
func TestDiesChild(t *testing.T) {
	how := os.Getenv("EMBEDTEST_TEST_DIES")
	if how == "" {
		return
	}
	Shared(t)
	c := Start(t, &Options{Members: 3})
	put(t, c.Client(), "a", "1")
	fmt.Println(how)
	switch how {
	case "panics":
		panic(how)
	case "exits":
		os.Exit(3)
	case "waits":
		_, err := io.ReadAll(os.Stdin)
		require.NoError(t, err)
		for i := range 3 {
			require.NoError(t, c.Crash(i))
		}
		require.NoError(t, c.Restart(within(t, patience), 0, 1, 2))
		require.Equal(t, "1", value(t, c, "a"))
	}
}
