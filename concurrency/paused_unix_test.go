//go:build unix

package concurrency_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// T26, F02: a process is stopped beyond its TTL and another gets the mutex. When
// it runs on, its first look at the permit shows the loss, and its guard holds.
func TestPausedProcess(t *testing.T) {
	if os.Getenv("ETCDKIT_PAUSED") != "" {
		pausedProcess(t)
		return
	}
	t.Parallel()
	f := shared(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctxT(t), self, "-test.run=^TestPausedProcess$", "-test.v")
	running := filepath.Join(t.TempDir(), "running") // is there as soon as the process runs on
	cmd.Env = append(os.Environ(), "ETCDKIT_PAUSED="+f.Root+" "+f.Endpoints()[0]+" "+running)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if line, ok := strings.CutPrefix(sc.Text(), "paused: "); ok {
				lines <- line
			}
		}
	}()
	require.Equal(t, "held", got(t, lines, "the other process holds"))
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	s, _ := f.Session(nil)
	p := lock(t, s, "x")
	require.NoError(t, os.WriteFile(running, nil, 0o600))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "lost true, context ended true, effect false", got(t, lines, "the other process runs on"))
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctxT(t)))
}

func pausedProcess(t *testing.T) {
	given := strings.SplitN(os.Getenv("ETCDKIT_PAUSED"), " ", 3)
	prefix, endpoint, running := given[0], given[1], given[2]
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	require.NoError(t, err)
	defer c.Close()
	o := quick()
	o.Prefix = prefix
	s, err := concurrency.NewSession(ctxT(t), c, "test", o)
	require.NoError(t, err)
	defer func() { _ = s.Close(ctxT(t)) }()
	p := lock(t, s, "x")
	fmt.Println("paused: held")
	for ctx := ctxT(t); ctx.Err() == nil; { // nothing but this loop has run since the process runs on, if need be
		if _, err := os.Stat(running); err != nil {
			continue
		}
		lost := p.Err() != nil
		ended := p.Context().Err() != nil
		resp, err := c.Txn(ctx).If(p.Guard()).Then(clientv3.OpPut(prefix+"effect", "")).Commit()
		require.NoError(t, err)
		fmt.Printf("paused: lost %v, context ended %v, effect %v\n", lost, ended, resp.Succeeded)
		return
	}
}
