package procs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Command says what to run.
type Command struct {
	Name string   // in errors
	Path string   // of the program
	Args []string // without the program's name
	Env  []string // in addition to our own
	Log  string   // the file that its output is appended to
}

// Process is one child process. It does not outlive this process where the
// system allows for that (Linux), however this process ends. Its methods may be
// called from several goroutines at once.
type Process struct {
	name  string
	log   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
	err   error // what Wait returned, once done is closed

	mu      sync.Mutex
	stopped bool // by Pause
}

// Run starts a process. Its standard input is a pipe that Quit closes.
func Run(c Command) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	p := &Process{name: c.Name, log: c.Log, cmd: exec.Command(c.Path, c.Args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Done is closed when the process has ended and is reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended: nil for exit status 0, or while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL, stopped or not, and returns when it is
// reaped. What it had written is in the log.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended
	<-p.done
}

// Quit asks the process to end by closing its standard input, and kills it if it
// does not in time. It continues a stopped process first.
func (p *Process) Quit(within time.Duration) error {
	_ = p.Resume()
	_ = p.stdin.Close()
	select {
	case <-p.done:
		return p.err
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s did not end within %v, and was killed", p.name, within)
	}
}

// errEnded is returned for a process that is not there any more.
var errEnded = errors.New("the process has ended")

// Pause stops the process (SIGSTOP) and returns when it has stopped. Where
// processes cannot be stopped the error is errors.ErrUnsupported.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Ended() {
		return fmt.Errorf("pause %s: %w", p.name, errEnded)
	}
	if err := Stop(p.cmd.Process); err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	p.stopped = true
	for end := time.Now().Add(time.Second); !isStopped(p.PID()) && !p.Ended() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the system announces it only to Wait
	}
	return nil
}

// Resume continues a stopped process; another one is left alone.
func (p *Process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped || p.Ended() {
		return nil
	}
	p.stopped = false
	if err := Continue(p.cmd.Process); err != nil {
		return fmt.Errorf("resume %s: %w", p.name, err)
	}
	return nil
}

// Paused reports whether the process is stopped by Pause.
func (p *Process) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// Tail returns the end of what the process has written, at most n bytes of it.
func (p *Process) Tail(n int64) string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err == nil && st.Size() > n {
		_, _ = f.Seek(-n, io.SeekEnd)
	}
	raw, _ := io.ReadAll(f)
	return string(raw)
}
