package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// grace is how long a process may take to end after its standard input was closed.
const grace = 5 * time.Second

// Process is a child process. Next and End must be called by one goroutine at a time; the other
// methods may be called concurrently.
type Process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	events *bufio.Scanner
}

// Start starts this program again, with settings as JSON in the environment variable env. When
// ctx ends, the standard input of the child is closed, which asks it to end; after five
// seconds the child is killed. Start returns an error if the child cannot be started.
func Start(ctx context.Context, env string, settings any) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), env+"="+string(raw))
	p.cmd.Stderr = os.Stderr
	p.cmd.Cancel = func() error {
		if CanPause {
			_ = p.Continue() // a stopped process cannot end
		}
		return p.in.Close()
	}
	p.cmd.WaitDelay = grace
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.orders, p.events = json.NewEncoder(p.in), bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	return p, nil
}

// ID returns the process ID.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Order writes a line of JSON to the child's standard input. It returns an error if the child
// has closed it.
func (p *Process) Order(v any) error { return p.orders.Encode(v) }

// Next reads the next line of the child's output as JSON into event. ok is false after the last
// line, when the child has ended or closed its output. Next returns an error for a line that is
// not JSON.
func (p *Process) Next(event any) (ok bool, err error) {
	if !p.events.Scan() {
		return false, p.events.Err()
	}
	if err := json.Unmarshal(p.events.Bytes(), event); err != nil {
		return false, fmt.Errorf("a worker process wrote %.80q: %w", p.events.Text(), err)
	}
	return true, nil
}

// Kill kills the process. It returns an error if the process has ended.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Leave asks the process to end, by closing its standard input, and does not wait.
func (p *Process) Leave() { _ = p.in.Close() }

// Wait reaps the process. The caller must have read its output to the end. Wait returns an error
// if the exit status is not 0.
func (p *Process) Wait() error { return p.cmd.Wait() }

// End asks the process to end, and kills it after five seconds if it has not. It returns when
// the process is reaped.
func (p *Process) End() {
	p.Leave()
	late := time.AfterFunc(grace, func() { _ = p.Kill() })
	defer late.Stop()
	for p.events.Scan() {
	}
	_ = p.Wait()
}
