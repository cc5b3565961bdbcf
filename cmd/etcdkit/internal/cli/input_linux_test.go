package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// openInput is standard input without an end.
type openInput struct{ begun, end chan struct{} }

func (e openInput) Read([]byte) (int, error) {
	close(e.begun)
	<-e.end
	return 0, io.EOF
}

// A signal ends each verb that reads a file, also while no process writes the pipe that it is, or none closes standard input. Only
// SIGKILL did (A469 in internal/proof/tested-failures.md).
func TestSignalEndsAReadOfInput(t *testing.T) {
	t.Parallel()
	resolve := []string{"requests", "resolve", "-N", "test", "orders", "c0535e4be2b79ffd/rE6fr"}
	for name, args := range map[string][]string{
		"cron":         {"cron", "-N", "test"},
		"cron --check": {"cron", "--check"},
		"--done":       append(slices.Clip(resolve), "--done"),
		"--body":       append(slices.Clip(resolve), "--status", "201", "--body"),
		"--message":    append(slices.Clip(resolve), "--message"),
	} {
		for _, file := range []string{"-", "a pipe"} {
			t.Run(name+" "+file, func(t *testing.T) {
				t.Parallel()
				stdin := openInput{make(chan struct{}), make(chan struct{})}
				t.Cleanup(func() { close(stdin.end) })
				if file != "-" {
					file = filepath.Join(t.TempDir(), "pipe")
					require.NoError(t, syscall.Mkfifo(file, 0o600))
				}
				ctx, cancel := context.WithCancelCause(testkit.Context(t))
				var said bytes.Buffer
				code := make(chan int, 1)
				go func() {
					code <- cli.Execute(ctx, slices.Concat(args, []string{file}), verb.Streams{In: stdin, Out: io.Discard, Err: &said})
				}()
				if file == "-" {
					testkit.Got(t, stdin.begun, "it reads")
				} else {
					require.Eventually(t, func() bool { // without a reader this fails
						f, err := os.OpenFile(file, os.O_WRONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // of the test
						if err == nil {
							t.Cleanup(func() { _ = f.Close() })
						}
						return err == nil
					}, testkit.Soon, 5*time.Millisecond)
				}
				cancel(exit.Interrupted{Signal: syscall.SIGTERM})
				select {
				case c := <-code:
					want := 128 + int(syscall.SIGTERM)
					if name == "cron" { // it serves until a signal ends it
						want = 0
					}
					require.Equal(t, want, c, &said)
				case <-time.After(10 * time.Second): // at once, on a machine at rest
					t.Fatal("it does not end")
				}
			})
		}
	}
}
