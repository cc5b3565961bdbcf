package clitest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// JobRun starts `etcdkit jobs run` with arguments.
func (f *Fixture) JobRun(args ...string) *Program {
	f.T.Helper()
	p := f.Prepare(nil, args...)
	p.Cmd.Args = append([]string{p.Cmd.Args[0], "jobs"}, p.Cmd.Args[1:]...)
	p.Begin()
	return p
}

// All waits for the end, and returns the exit code and the output.
func (p *Program) All() (code int, out string) {
	p.t.Helper()
	ended := make(chan string, 1)
	go func() { text, _ := io.ReadAll(p.Out); ended <- string(text) }()
	out = testkit.Got(p.t, ended, "its output has ended; stderr: "+p.Errs.String())
	_ = p.Cmd.Wait()
	return p.Cmd.ProcessState.ExitCode(), out
}

// Program is the command as a process of its own.
type Program struct {
	Cmd  *exec.Cmd
	Out  *bufio.Reader
	Errs *Buffer
	t    *testing.T
}

// Buffer may be read while a process writes it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Start starts `etcdkit run` with arguments.
func (f *Fixture) Start(stdin io.Reader, args ...string) *Program {
	f.T.Helper()
	p := f.Prepare(stdin, args...)
	p.Begin()
	return p
}

// Prepare returns the program that start starts.
func (f *Fixture) Prepare(stdin io.Reader, args ...string) *Program {
	f.T.Helper()
	self, err := os.Executable()
	require.NoError(f.T, err)
	p := &Program{t: f.T, Errs: &Buffer{}}
	p.Cmd = exec.Command(self, append([]string{"run"}, f.Args(append([]string{"-N", "test"}, args...)...)...)...)
	p.Cmd.Env = append(os.Environ(), AsCommand+"=1")
	p.Cmd.Stdin, p.Cmd.Stderr = stdin, p.Errs
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // in an orphaned process group the kernel drops SIGTSTP
	out, err := p.Cmd.StdoutPipe()
	require.NoError(f.T, err)
	p.Out = bufio.NewReader(out)
	return p
}

// Begin starts the program.
func (p *Program) Begin() {
	p.t.Helper()
	require.NoError(p.t, p.Cmd.Start())
	p.t.Cleanup(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGCONT)
		_ = p.Cmd.Process.Kill() // its guard kills the rest
	})
}

// Line returns the next line that the command has written.
func (p *Program) Line() string {
	p.t.Helper()
	text := make(chan string, 1)
	go func() {
		s, _ := p.Out.ReadString('\n')
		text <- strings.TrimSpace(s)
	}()
	return testkit.Got(p.t, text, "a line of the command; stderr: "+p.Errs.String())
}

// Code waits for the end and returns the exit code.
func (p *Program) Code() int {
	p.t.Helper()
	rest := make(chan struct{})
	go func() { defer close(rest); _, _ = io.Copy(io.Discard, p.Out) }()
	testkit.Closed(p.t, rest, "its output has ended: no process of it is left; stderr: "+p.Errs.String())
	_ = p.Cmd.Wait()
	return p.Cmd.ProcessState.ExitCode()
}

// Says waits for a text on standard error.
func (p *Program) Says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.Errs.String(), text) }, testkit.Soon, 10*time.Millisecond, "%s", text)
}
