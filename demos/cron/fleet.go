package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// fleet is the parent's side: the processes, row by row. A row keeps its clock when its
// process is replaced.
type fleet struct {
	config
	settings
	log  *log
	fail context.CancelCauseFunc

	wg sync.WaitGroup

	mu   sync.Mutex
	rows []*member
	all  map[string]*member // by worker
	jobs []job              // once there are any
}

// member is one process.
type member struct {
	worker string
	row    int
	proc   *child.Process
	gone   chan struct{} // closed when it is reaped

	fate   string     // the last fault: killed, paused or ""
	pauses [][2]int64 // from when to when, on the host's clock
	left   bool       // it was requested to end
}

func newFleet(ctx context.Context, c config, s settings) (*fleet, context.Context) {
	ctx, fail := context.WithCancelCause(ctx)
	return &fleet{config: c, settings: s, log: newLog(), fail: fail, rows: make([]*member, c.workers), all: map[string]*member{}}, ctx
}

// start starts a process in a row, in place of the previous one, and returns when it runs jobs.
func (f *fleet) start(ctx context.Context, row int) error {
	s := f.settings
	s.Shift = f.shift(row)
	f.mu.Lock()
	generation := 1
	for _, m := range f.all {
		if m.row == row {
			generation++
		}
	}
	s.Owner = fmt.Sprintf("worker-%d.%d", row+1, generation)
	jobs := f.jobs
	f.mu.Unlock()
	proc, err := child.Start(ctx, workerEnv, s)
	if err != nil {
		return err
	}
	m := &member{worker: s.Owner, row: row, proc: proc, gone: make(chan struct{})}
	f.mu.Lock()
	f.rows[row], f.all[m.worker] = m, m
	f.mu.Unlock()
	f.wg.Go(func() { f.listen(m) })
	if _, err = f.log.await(ctx, func(e event) bool { return e.Kind == evReady && e.worker == m.worker }); err != nil {
		return err
	}
	if jobs == nil {
		return nil
	}
	return proc.Order(jobs)
}

// listen logs a process's events until it has ended.
func (f *fleet) listen(m *member) {
	defer close(m.gone)
	bye := false
	for {
		var e event
		ok, err := m.proc.Next(&e)
		if err != nil {
			f.fail(err)
		}
		if !ok {
			break
		}
		bye = bye || e.Kind == evBye
		e.worker = m.worker
		f.log.add(e)
	}
	err := m.proc.Wait()
	f.mu.Lock()
	expected := m.fate == killed || m.left && bye
	f.mu.Unlock()
	if !expected {
		f.fail(fmt.Errorf("%s ended without being asked: %w", m.worker, errors.Join(err, errors.New("its work was not done"))))
	}
}

// startAll starts a process in each row, and sends them the jobs when all are ready.
func (f *fleet) startAll(ctx context.Context) ([]job, error) {
	if err := program.Each(f.workers, func(row int) error { return f.start(ctx, row) }); err != nil {
		return nil, err
	}
	jobs := crontab(f.config, time.Now().Add(f.skew+500*time.Millisecond).Round(time.Millisecond))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = jobs
	for _, m := range f.rows {
		if err := m.proc.Order(jobs); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// leave requests a process to end after its active runs.
func (f *fleet) leave(m *member) {
	f.mu.Lock()
	m.left = true
	f.mu.Unlock()
	m.proc.Leave()
}

// stopAll ends all processes. No event is logged afterwards.
func (f *fleet) stopAll() {
	f.mu.Lock()
	rows := append([]*member(nil), f.rows...)
	f.mu.Unlock()
	for _, m := range rows {
		if m != nil {
			f.leave(m)
		}
	}
	f.wg.Wait()
}
