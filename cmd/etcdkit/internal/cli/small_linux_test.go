package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// The guard dies after the command has exited: what the command has left running is killed, and that is said.
func TestRunSaysThatWhatWasLeftWasKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	exit := filepath.Join(t.TempDir(), "exit")
	p := f.start(nil, "x", "--exit-file", exit, "--", "sh", "-c", "echo $PPID; setsid sleep 600 & exit 0")
	guarding, err := strconv.Atoi(p.line())
	require.NoError(t, err)
	p.says("has exited and left sleep")
	require.NoError(t, syscall.Kill(guarding, syscall.SIGKILL))
	require.Zero(t, p.code(), "the code is the command's")
	require.Contains(t, p.errs.String(), "what the command had left running was killed")
	note, err := os.ReadFile(exit)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"command","code":0,"ended_by":"guard-killed"`)
}

// An exit file that is a FIFO holds nothing up: without a reader it is refused before anything is acquired, and with one
// that is gone at the end the exit code is the command's.
func TestRunExitFileIsAFIFO(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	p := f.start(nil, "x", "--exit-file", fifo, "--", "true")
	require.Equal(t, exitUsage, p.code())
	require.Contains(t, p.errs.String(), "no process reads the FIFO")

	reader, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0) // no other process keeps it open
	require.NoError(t, err)
	p = f.start(nil, "x", "--exit-file", fifo, "--", "true")
	require.Zero(t, p.code(), p.errs)
	text := make([]byte, 4096)
	n, err := syscall.Read(reader, text)
	require.NoError(t, err)
	require.Equal(t, `{"schema":"etcdkit.exit/v1","result":"command","code":0}`+"\n", string(text[:n]))

	in, end, err := os.Pipe()
	require.NoError(t, err)
	p = f.start(in, "x", "--exit-file", fifo, "--", "sh", "-c", "echo started; read wait; exit 3")
	require.Equal(t, "started", p.line())
	require.NoError(t, syscall.Close(reader))
	require.NoError(t, end.Close())
	require.Equal(t, 3, p.code())
	require.Contains(t, p.errs.String(), "no process reads the FIFO")
}

// A stream ends when its reader has gone, though nothing changes.
func TestStreamsEndWithTheirReader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "show", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix, "-N", "test", "mutex/quiet", "--watch", "-o", "json")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = write
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, write.Close())
	_, err = read.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, read.Close())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	testkit.Closed(t, ended, "the stream has ended")
	require.Equal(t, 141, cmd.ProcessState.ExitCode())
}

// On a narrow terminal doctor breaks its findings between words.
func TestDoctorOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.terminal()
	require.NoError(t, unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 60}))
	s.types("$DOCTOR; echo code=$?\n")
	s.shows(`code=(\d+)`)
	_, shown, ok := strings.Cut(s.shown.String(), "OK  ")
	require.True(t, ok, s.shown)
	for line := range strings.Lines("OK  " + shown) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\r\n"))), 60, line)
	}
}

// mandoc's warnings: a page without a date, and a tab in a paragraph.
func TestManHasADateAndNoTabs(t *testing.T) {
	t.Parallel()
	pages := manuals(tree())
	require.NotEmpty(t, pages)
	for name, page := range pages {
		require.Regexp(t, regexp.MustCompile(`^\.TH "[A-Z-]+" 1 "\d{4}-\d\d-\d\d" `), page, name)
		require.NotContains(t, page, "\t", name)
	}
	require.Contains(t, pages["etcdkit-completion-bash.1"], ".nf\nsource <(etcdkit completion bash)\n.fi")
}

// etcdctl removes the spaces between endpoints.
func TestEndpointsAreTrimmed(t *testing.T) {
	f := newFixture(t)
	t.Setenv("ETCDCTL_ENDPOINTS", "127.0.0.1:1 , "+f.etcd.Endpoints()[0]+" ")
	cmd := exec.Command(os.Args[0], "ls", "--prefix", f.prefix) //nolint:noctx // it ends by itself
	cmd.Env = append(os.Environ(), asCommand+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestWrapped(t *testing.T) {
	t.Parallel()
	require.Empty(t, wrapped("", 40))
	require.Equal(t, []string{strings.Repeat("word ", 30)}, wrapped(strings.Repeat("word ", 30), -6), "no terminal")
	require.Equal(t, []string{"a text of seven words", "and one more"}, wrapped("a text of seven words and one more", 21))
	require.Equal(t, []string{"short", strings.Repeat("x", 30), "rest"}, wrapped("short "+strings.Repeat("x", 30)+" rest", 20))
}

// A duration without a unit is refused with an example.
func TestDurationsWithoutAUnit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run("run", "-N", "test", "x", "--wait", "5", "--", "true")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "missing unit in duration \"5\", as in 5s or 1h30m")
}
