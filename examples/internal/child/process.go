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

// grace is how long a process that was told to end may take.
const grace = 5 * time.Second

// Process is a child as its parent sees it. Next and End are for one goroutine, the rest
// for any.
type Process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	events *bufio.Scanner
}

// Start starts this program again, with settings as JSON in the environment variable env.
// When ctx ends the child is told to end, by the end of its standard input, and is killed
// after a while if it does not. It returns an error if it cannot be started.
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
			_ = p.Continue() // a stopped process hears nothing
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
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return p, nil
}

// ID returns the process ID.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Order sends a line of JSON to the child's standard input. It returns an error if the
// child hears no more.
func (p *Process) Order(v any) error { return p.orders.Encode(v) }

// Next reads the next event, a line of JSON, into one. ok is false when the process has
// closed its output: it is dead, or dying. What it had written before is never lost. It
// returns an error for a line that is no event.
func (p *Process) Next(event any) (ok bool, err error) {
	if !p.events.Scan() {
		return false, p.events.Err()
	}
	if err := json.Unmarshal(p.events.Bytes(), event); err != nil {
		return false, fmt.Errorf("a worker said %.80q: %w", p.events.Text(), err)
	}
	return true, nil
}

// Kill kills the process. It returns an error if it has ended.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Leave tells the process to end, and waits for nothing.
func (p *Process) Leave() { _ = p.in.Close() }

// Wait reaps the process, whose output must have been read to the end. It returns an
// error if the process did not end well.
func (p *Process) Wait() error { return p.cmd.Wait() }

// End tells the process to end, waits for it, and kills it if it does not.
func (p *Process) End() {
	p.Leave()
	late := time.AfterFunc(grace, func() { _ = p.Kill() })
	defer late.Stop()
	for p.events.Scan() {
	}
	_ = p.Wait()
}
