package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The end of a run ends go test and what that has started: of a run of CI that is stopped nothing stays behind.
func TestRunIsEnded(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-count=1", "-v"} {
		dir := t.TempDir()
		pipe, tool := filepath.Join(dir, "pipe"), filepath.Join(dir, "go")
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\n(echo begun; sleep 600) >"+pipe+"\n"), 0o700))
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, _, err := options{}.run(ctx, io.Discard, []string{tool, "test", flag, "./a"})
			ended <- err
		}()
		f, err := os.Open(pipe)
		require.NoError(t, err)
		begun := make([]byte, len("begun\n"))
		_, err = io.ReadFull(f, begun)
		require.NoError(t, err)
		end()
		require.Error(t, <-ended)
		_, err = io.ReadAll(f) // until its last process has ended
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}
