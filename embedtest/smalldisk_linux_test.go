package embedtest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// onSmallDisk runs one part of TestSmallDiskChild in a process whose temporary directory is
// on a file system of 40 MB. It returns the output of the process and whether the part passed.
// It skips t where the system does not permit the mount.
func onSmallDisk(t *testing.T, part string) (out string, passed bool) {
	t.Helper()
	ownServersOnly(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSmallDiskChild$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "EMBEDTEST_TEST_DISK="+dir, "EMBEDTEST_TEST_PART="+part, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || strings.Contains(string(text), cannotMount) {
		t.Skipf("this system permits no mount of a small file system: %v %s", err, text)
	}
	return string(text), err == nil
}

const cannotMount = "embedtest cannot mount a small disk"

// TestSmallDiskChild is the body of the process of onSmallDisk. The mount ends with it.
func TestSmallDiskChild(t *testing.T) {
	dir := os.Getenv("EMBEDTEST_TEST_DISK")
	if dir == "" {
		return
	}
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=40m")
	}
	if err != nil {
		fmt.Println(cannotMount, err)
		os.Exit(1)
	}
	t.Run("part", func(t *testing.T) { smallDiskParts[os.Getenv("EMBEDTEST_TEST_PART")](t) })
	t.Run("after", func(t *testing.T) { require.NoError(t, os.RemoveAll(filler())) })
}

func filler() string { return filepath.Join(os.Getenv("EMBEDTEST_TEST_DISK"), "filler") }

// fill leaves that many bytes of the small disk free.
func fill(t *testing.T, leave int64) {
	free, known := freeSpace(filepath.Dir(filler()))
	require.True(t, known)
	f, err := os.Create(filler())
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, free-leave))
}

// write puts until etcd accepts no more. After a fatal error a put waits until its context
// ends.
func write(t *testing.T, cl *clientv3.Client) {
	for i := range 10_000 {
		if _, err := cl.Put(within(t, 2*time.Second), fmt.Sprint("k", i), strings.Repeat("x", 100_000)); err != nil {
			t.Logf("put %d: %v", i, err)
			return
		}
	}
}

var smallDiskParts = map[string]func(t *testing.T){
	"start": func(t *testing.T) {
		fill(t, 20_000_000)
		Start(t, &Options{Members: 3})
	},
	"start in a given directory": func(t *testing.T) {
		fill(t, 1_000_000)
		Start(t, &Options{Dir: filepath.Dir(filler())})
	},
	"other segments": func(t *testing.T) {
		wal.SegmentSizeBytes = 1_000_000
		fill(t, 10_000_000)
		put(t, Start(t, &Options{Members: 3}).Client(), "k", "v")
	},
	"full during the start": func(t *testing.T) {
		_, err := New(t.Context(), &Options{Configure: func(*embed.Config) { fill(t, 1_000_000) }})
		require.Error(t, err)
		fmt.Println("New returned:", err)
	},
	"damaged before a restart": func(t *testing.T) {
		c := Start(t, nil)
		require.NoError(t, c.Stop(0))
		files, err := filepath.Glob(filepath.Join(c.members[0].dir, "member/wal/*.wal"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.NoError(t, os.WriteFile(files[0], []byte(strings.Repeat("damage ", 1000)), 0o600))
		fmt.Println("Restart returned:", c.Restart(within(t, patience), 0))
		fmt.Println("again:", c.Restart(within(t, patience), 0))
	},
	"later": func(t *testing.T) {
		c := Start(t, nil)
		fill(t, 1_000_000)
		write(t, c.Client())
	},
	"later, three members": func(t *testing.T) {
		c := Start(t, &Options{Members: 3})
		fill(t, 1_000_000)
		write(t, c.Client())
	},
	"later, another logger": func(t *testing.T) {
		c := Start(t, &Options{Logger: zap.NewNop()})
		fill(t, 1_000_000)
		write(t, c.Client())
	},
	"later, without a test": func(t *testing.T) {
		c, err := New(t.Context(), nil)
		require.NoError(t, err)
		fill(t, 1_000_000)
		write(t, c.Client())
	},
}

const (
	noSpace  = "no space left on device"
	wentOn   = "--- PASS: TestSmallDiskChild/after"
	ended    = "--- FAIL: TestSmallDiskChild/part"
	inTheLog = "serving client traffic insecurely" // by etcd, at the end of its start
)

// A10: if the disk space is too small, the error of the start has the needed space, the
// directory and how to choose another one. The process continues.
func TestStartWithoutRoom(t *testing.T) {
	t.Parallel()
	for part, way := range map[string]string{
		"start":                      "27.0 MB needed for 3 members, 20.0 MB free (set TMPDIR to a directory with more space)",
		"start in a given directory": "9.0 MB needed for 1 member, 1.0 MB free (named by Options.Dir)",
	} {
		out, _ := onSmallDisk(t, part)
		require.Contains(t, out, "not enough disk space in "+os.TempDir(), part)
		require.Contains(t, out, way, part)
		require.Contains(t, out, ended, part)
		require.Contains(t, out, wentOn, part)
	}
}

// etcd and the check of the disk space both use a segment size that the program has set.
func TestOtherSegments(t *testing.T) {
	t.Parallel()
	out, passed := onSmallDisk(t, "other segments")
	require.True(t, passed, out)
}

// A10: if etcd fails during its start, the call that starts it returns the reason and the log.
func TestFatalAtStart(t *testing.T) {
	t.Parallel()
	out, passed := onSmallDisk(t, "full during the start")
	require.True(t, passed, out)
	require.Regexp(t, "New returned: embedtest: member m0: etcd failed: .*"+noSpace, out)
	require.Contains(t, out, "log of etcd:\n")

	out, passed = onSmallDisk(t, "damaged before a restart")
	require.True(t, passed, out)
	require.Regexp(t, "Restart returned: embedtest: member m0: etcd failed: panic: ", out)
	require.Regexp(t, "again: embedtest: start member m0: .*has not ended", out)
}

// A10: if etcd fails later, the log is written at once and again by the test, which fails.
// The process continues.
func TestFatalLater(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"later", "later, three members", "later, another logger"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			out, _ := onSmallDisk(t, part)
			at, with, found := strings.Cut(out, "smalldisk_linux_test.go")
			require.True(t, found, out)
			for _, shown := range []string{at, with} {
				require.Regexp(t, "embedtest: member m.: etcd failed: .*"+noSpace, shown)
				require.Equal(t, part != "later, another logger", strings.Contains(shown, "log of etcd:"), shown)
			}
			// At the end of the test the buffer may have only later entries of the other members.
			require.Equal(t, part != "later, another logger", strings.Contains(at, "FATAL"), at)
			require.Contains(t, out, ended)
			require.Contains(t, out, wentOn)
		})
	}
}

// A10: without a test, the process exits, as with etcd itself, but after the log is written.
func TestFatalWithoutATest(t *testing.T) {
	t.Parallel()
	out, passed := onSmallDisk(t, "later, without a test")
	require.False(t, passed)
	require.Regexp(t, "embedtest: member m0: etcd failed: .*"+noSpace, out)
	require.Contains(t, out, inTheLog)
	require.NotContains(t, out, wentOn)
}

// A10: the disk space that a member uses is at most what its start requires.
func TestDiskOfAMember(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	for _, m := range c.members {
		need := 2*wal.SegmentSizeBytes + baseSize
		require.Eventually(t, func() bool { return onDisk(t, m.dir) > wal.SegmentSizeBytes }, patience, pollEvery)
		require.LessOrEqual(t, onDisk(t, m.dir), need)
		require.LessOrEqual(t, need, int64(10_000_000))
	}
}

func onDisk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if info, gone := d.Info(); err == nil && gone == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	}))
	return bytes
}
