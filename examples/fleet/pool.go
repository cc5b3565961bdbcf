package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// maxAttempts bounds the attempts at one execution, so that a run ends.
const maxAttempts = 50

// pool runs the executions with a fixed number of workers. If the process of a worker ends,
// the worker starts a new one.
type pool struct {
	config
	settings
	plan plan
	log  *history

	todo chan task // holds each unfinished execution at most once
	left atomic.Int64
}

type task struct{ execution, attempt int }

func newPool(c config, s settings, log *history) *pool {
	p := &pool{config: c, settings: s, plan: newPlan(c), log: log, todo: make(chan task, c.executions)}
	for i := range c.executions {
		p.todo <- task{i, 1}
	}
	p.left.Store(int64(c.executions))
	return p
}

// run returns when all executions have succeeded and all processes have ended. It returns the
// cause of ctx if ctx ends first, and an error if a worker process ends unexpectedly.
func (p *pool) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	for row := range p.workers {
		wg.Go(func() {
			if err := p.serve(ctx, row); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// serve is one worker, a row of the timeline: it sends tasks to its process, one at a time.
func (p *pool) serve(ctx context.Context, row int) error {
	var proc *child.Process
	defer func() {
		if proc != nil {
			proc.End()
		}
	}()
	for {
		var t task
		var more bool
		select {
		case <-ctx.Done():
			return nil
		case t, more = <-p.todo:
		}
		if !more {
			return nil
		}
		if proc == nil {
			var err error
			if proc, err = child.Start(ctx, workerEnv, p.settings); err != nil {
				return err
			}
		}
		r := run{pool: p, proc: proc, row: row, job: p.plan.job(t.execution, t.attempt)}
		end, err := r.run(ctx)
		if r.dead {
			proc = nil
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		p.log.ended(&r, end)
		switch {
		case end != succeeded && t.attempt == maxAttempts:
			return fmt.Errorf("execution %d has failed %d times, the last end is %q: %s", t.execution, t.attempt, labels[end], r.reason)
		case end != succeeded:
			p.todo <- task{t.execution, t.attempt + 1}
		case p.left.Add(-1) == 0:
			close(p.todo)
		}
	}
}

// run is one attempt in a process. It receives the events of the process, and kills or pauses
// the process at the planned step.
type run struct {
	*pool
	proc   *child.Process
	row    int
	job    job
	paused bool
	dead   bool   // the process has ended and was reaped
	reason string // of a bad end
}

func (r *run) run(ctx context.Context) (ending, error) {
	if err := r.proc.Order(r.job); err != nil {
		return "", r.lostProcess(err)
	}
	for {
		var e event
		ok, err := r.proc.Next(&e)
		if !ok {
			return "", r.lostProcess(err)
		}
		r.note(e)
		switch {
		case e.Kind == evDone:
			return r.done(e), nil
		case r.job.End == killed && r.isTime(e):
			return r.kill(ctx)
		case r.job.End == paused && r.isTime(e):
			if err := r.pauseProcess(ctx); err != nil {
				return "", err
			}
		}
	}
}

// isTime reports whether the planned kill or pause is due at this event.
func (r *run) isTime(e event) bool {
	if r.job.At == 0 {
		return e.Kind == evWait
	}
	return e.Kind == evBegin && e.Step == r.job.At
}

// note adds an event to the history.
func (r *run) note(e event) {
	e.Worker, e.Process = r.row, r.proc.ID()
	r.log.add(e)
}

// mark adds an event of the parent to the history.
func (r *run) mark(kind string, at int64) {
	r.note(event{At: at, Kind: kind, Execution: r.job.Execution, Attempt: r.job.Attempt})
}

func (r *run) done(e event) ending {
	r.reason = e.Error
	if e.End == lost && r.paused {
		return paused
	}
	return e.End
}

// kill kills and reaps the process. For the referee it works until the signal was sent, or until the last event that it
// has reported. It runs nothing more then, but a busy kernel can take seconds to take it down.
func (r *run) kill(ctx context.Context) (ending, error) {
	if r.job.At == 0 {
		_ = program.Sleep(ctx, 150*time.Millisecond) // until the request is in the queue
	}
	if err := r.proc.Kill(); err != nil {
		return "", fmt.Errorf("kill a worker: %w", err)
	}
	end, dead := killed, hostclock.Now()
	for {
		var e event
		if ok, _ := r.proc.Next(&e); !ok {
			break
		}
		r.note(e)
		dead = max(dead, e.At)
		if e.Kind == evDone { // the attempt ended before the kill
			end = r.done(e)
		}
	}
	_ = r.proc.Wait()
	r.dead = true
	r.mark(evKill, dead)
	return end, nil
}

// pauseProcess stops the process for pause(), in which its permit expires.
func (r *run) pauseProcess(ctx context.Context) error {
	r.paused = true
	if err := r.proc.Stop(); err != nil {
		return fmt.Errorf("pause a worker: %w", err)
	}
	r.mark(evStop, hostclock.Now())
	_ = program.Sleep(ctx, r.pause())
	r.mark(evCont, hostclock.Now())
	if err := r.proc.Continue(); err != nil {
		return fmt.Errorf("continue a worker: %w", err)
	}
	return nil
}

// lostProcess reaps a process that has ended unexpectedly.
func (r *run) lostProcess(err error) error {
	status := r.proc.Wait()
	r.dead = true
	if status == nil {
		status = errors.New("the process ended with status 0")
	}
	return fmt.Errorf("worker %d: %w", r.row+1, errors.Join(status, err))
}
