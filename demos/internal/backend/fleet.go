package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/internal/examples/child"
)

// Fleet is the child processes of a program. Its methods may be called concurrently.
type Fleet struct {
	env    string
	notice func(server string, e Event)
	fail   context.CancelCauseFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	all []*Server
}

// Server is one child process.
type Server struct {
	Name string
	URL  string

	proc   *child.Process
	ready  chan string
	gone   chan struct{} // closed when the process has ended
	ending bool          // was stopped or killed
}

// NewFleet returns a fleet without processes, and a context that ends when one of them ends
// unexpectedly, with that error as its cause. The settings of a process are passed in the environment
// variable env. notice is called with each event of a server.
func NewFleet(ctx context.Context, env string, notice func(server string, e Event)) (*Fleet, context.Context) {
	ctx, fail := context.WithCancelCause(ctx)
	return &Fleet{env: env, notice: notice, fail: fail}, ctx
}

// Fail ends the context of the fleet.
func (f *Fleet) Fail(err error) { f.fail(err) }

// Start starts a process and returns when it serves. It returns an error if the process ends first,
// and the cause of ctx if ctx does.
func (f *Fleet) Start(ctx context.Context, name string, settings any) (*Server, error) {
	proc, err := child.Start(ctx, f.env, settings)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, proc: proc, ready: make(chan string, 1), gone: make(chan struct{})}
	f.mu.Lock()
	f.all = append(f.all, s)
	f.mu.Unlock()
	f.wg.Go(func() { f.listen(s) })
	select {
	case addr := <-s.ready:
		s.URL = "http://" + addr
		return s, nil
	case <-s.gone:
		return nil, fmt.Errorf("%q has not started", name)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// listen handles the events of a process until it has ended.
func (f *Fleet) listen(s *Server) {
	defer close(s.gone)
	for {
		var e Event
		ok, err := s.proc.Next(&e)
		if err != nil {
			f.fail(err)
		}
		if !ok {
			break
		}
		if e.Kind == ready {
			s.ready <- e.Text
		} else {
			f.notice(s.Name, e)
		}
	}
	err := s.proc.Wait()
	f.mu.Lock()
	expected := s.ending
	f.mu.Unlock()
	if !expected {
		f.fail(fmt.Errorf("%q has ended unexpectedly: %w", s.Name, cmp.Or(err, errors.New("exit status 0"))))
	}
}

// Kill kills a process and returns when it has ended.
func (f *Fleet) Kill(s *Server) error {
	f.mu.Lock()
	s.ending = true
	f.mu.Unlock()
	if err := s.proc.Kill(); err != nil {
		return fmt.Errorf("kill %q: %w", s.Name, err)
	}
	<-s.gone
	return nil
}

// Pause stops the process (SIGSTOP).
func (s *Server) Pause() error { return s.proc.Stop() }

// Continue continues a process that was paused (SIGCONT).
func (s *Server) Continue() error { return s.proc.Continue() }

// Stop ends all processes.
func (f *Fleet) Stop() {
	f.mu.Lock()
	for _, s := range f.all {
		s.ending = true
		s.proc.Leave()
	}
	f.mu.Unlock()
	f.wg.Wait()
	f.fail(nil)
}
