package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
)

// The guard dies after the command has exited: what the command has left running is killed, and that is said.
func TestRunSaysThatWhatWasLeftWasKilled(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	exit := filepath.Join(t.TempDir(), "exit")
	p := f.Start(nil, "x", "--exit-file", exit, "--", "sh", "-c", "echo $PPID; setsid sleep 600 & exit 0")
	guarding, err := strconv.Atoi(p.Line())
	require.NoError(t, err)
	p.Says("has exited and left sleep")
	require.NoError(t, syscall.Kill(guarding, syscall.SIGKILL))
	require.Zero(t, p.Code(), "the code is the command's")
	require.Contains(t, p.Errs.String(), "what the command had left running was killed")
	note, err := os.ReadFile(exit)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"command","code":0,"ended_by":"guard-killed"`)
}

// An exit file that is a FIFO holds nothing up: without a reader it is refused before anything is acquired, and with one
// that is gone at the end the exit code is the command's.
func TestRunExitFileIsAFIFO(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	p := f.Start(nil, "x", "--exit-file", fifo, "--", "true")
	require.Equal(t, exit.Usage, p.Code())
	require.Contains(t, p.Errs.String(), "no process reads the FIFO")

	reader, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0) // no other process keeps it open
	require.NoError(t, err)
	p = f.Start(nil, "x", "--exit-file", fifo, "--", "true")
	require.Zero(t, p.Code(), p.Errs)
	text := make([]byte, 4096)
	n, err := syscall.Read(reader, text)
	require.NoError(t, err)
	require.Equal(t, `{"schema":"etcdkit.exit/v1","result":"command","code":0}`+"\n", string(text[:n]))

	in, end, err := os.Pipe()
	require.NoError(t, err)
	p = f.Start(in, "x", "--exit-file", fifo, "--", "sh", "-c", "echo started; read wait; exit 3")
	require.Equal(t, "started", p.Line())
	require.NoError(t, syscall.Close(reader))
	require.NoError(t, end.Close())
	require.Equal(t, 3, p.Code())
	require.Contains(t, p.Errs.String(), "no process reads the FIFO")
}
