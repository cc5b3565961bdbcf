package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/examples/internal/child"
)

// fleet is the child processes: the provider, and the servers by their places behind the proxy.
type fleet struct {
	settings
	proxy *proxy
	fail  context.CancelCauseFunc
	wg    sync.WaitGroup

	mu     sync.Mutex
	all    map[string]*member // by name
	hungUp map[string]chan struct{}
}

// member is one process.
type member struct {
	name   string
	row    int
	proc   *child.Process
	ready  chan string   // its address
	gone   chan struct{} // closed when the process has ended
	ending bool          // was stopped or killed
}

func newFleet(ctx context.Context, s settings) (*fleet, context.Context) {
	ctx, fail := context.WithCancelCause(ctx)
	return &fleet{settings: s, proxy: newProxy(servers), fail: fail, all: map[string]*member{}, hungUp: map[string]chan struct{}{}}, ctx
}

// startAll starts the provider, then the servers.
func (f *fleet) startAll(ctx context.Context) error {
	_, addr, err := f.start(ctx, "", -1)
	if err != nil {
		return err
	}
	f.Provider = "http://" + addr
	errs := make([]error, servers)
	var wg sync.WaitGroup
	for row := range servers {
		wg.Go(func() { errs[row] = f.startServer(ctx, row, 1) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *fleet) startServer(ctx context.Context, row, generation int) error {
	_, addr, err := f.start(ctx, fmt.Sprintf("server-%d.%d", row+1, generation), row)
	if err == nil {
		f.proxy.set(row, addr)
	}
	return err
}

func (f *fleet) start(ctx context.Context, name string, row int) (*member, string, error) {
	s := f.settings
	s.Name = name
	proc, err := child.Start(ctx, childEnv, s)
	if err != nil {
		return nil, "", err
	}
	m := &member{name: name, row: row, proc: proc, ready: make(chan string, 1), gone: make(chan struct{})}
	f.mu.Lock()
	f.all[name] = m
	f.mu.Unlock()
	f.wg.Go(func() { f.listen(m) })
	select {
	case addr := <-m.ready:
		return m, addr, nil
	case <-m.gone:
		return nil, "", fmt.Errorf("%q has not started", name)
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
}

// listen handles the events of a process until it has ended.
func (f *fleet) listen(m *member) {
	defer close(m.gone)
	for {
		var e event
		ok, err := m.proc.Next(&e)
		if err != nil {
			f.fail(err)
		}
		if !ok {
			break
		}
		switch e.Kind {
		case evReady:
			m.ready <- e.Addr
		case evHungUp:
			f.notice(e.Order)
		}
	}
	err := m.proc.Wait()
	f.mu.Lock()
	expected := m.ending
	f.mu.Unlock()
	if !expected {
		f.fail(fmt.Errorf("%q has ended unexpectedly: %w", m.name, cmp.Or(err, errors.New("exit status 0"))))
	}
}

func (f *fleet) notice(order string) {
	noticed := f.noticed(order)
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-noticed:
	default:
		close(noticed)
	}
}

// noticed returns a channel that is closed when a server has noticed that the client of a payment has
// hung up.
func (f *fleet) noticed(order string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.hungUp[order]
	if c == nil {
		c = make(chan struct{})
		f.hungUp[order] = c
	}
	return c
}

// replace kills a server and starts another one in its place.
func (f *fleet) replace(ctx context.Context, name string) error {
	f.mu.Lock()
	m := f.all[name]
	generation := 1
	if m != nil {
		m.ending = true
		for _, other := range f.all {
			if other.row == m.row {
				generation++
			}
		}
	}
	f.mu.Unlock()
	if m == nil {
		return fmt.Errorf("kill %q: no such server", name)
	}
	f.proxy.set(m.row, "")
	if err := m.proc.Kill(); err != nil {
		return err
	}
	<-m.gone
	return f.startServer(ctx, m.row, generation)
}

// stopAll ends all processes.
func (f *fleet) stopAll() {
	f.mu.Lock()
	for _, m := range f.all {
		m.ending = true
		m.proc.Leave()
	}
	f.mu.Unlock()
	f.wg.Wait()
}
