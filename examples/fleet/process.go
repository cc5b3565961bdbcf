package main

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

// process is a worker as the parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	jobs   *json.Encoder
	events *bufio.Scanner
}

// startProcess starts this program again, as a worker. When ctx ends the process
// is told to end, and is killed after a while if it does not.
func startProcess(ctx context.Context, s settings) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(raw))
	p.cmd.Stderr = os.Stderr
	p.cmd.Cancel = func() error {
		if canPause {
			_ = continueProcess(p.cmd.Process) // a stopped process hears nothing
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
	p.jobs, p.events = json.NewEncoder(p.in), bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return p, nil
}

func (p *process) id() int { return p.cmd.Process.Pid }

// next returns the next event. ok is false when the process has closed its
// output: it is dead, or dying. What it had written before is never lost.
func (p *process) next() (e event, ok bool, err error) {
	if !p.events.Scan() {
		return event{}, false, p.events.Err()
	}
	if err := json.Unmarshal(p.events.Bytes(), &e); err != nil {
		return event{}, false, fmt.Errorf("a worker said %.80q: %w", p.events.Text(), err)
	}
	return e, true, nil
}

// wait reaps the process. Its output must have been read to the end.
func (p *process) wait() error { return p.cmd.Wait() }

// end tells the process to end, waits for it, and kills it if it does not.
func (p *process) end() {
	_ = p.in.Close()
	late := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for {
		if _, ok, _ := p.next(); !ok {
			break
		}
	}
	_ = p.wait()
}
