package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
)

// services start the processes of the fleet again when they have ended, as a service manager does.
type services struct {
	settings        // of all processes, without a node
	targets  string // a file in which Prometheus finds their metrics
	all      map[string]*service
	running  sync.WaitGroup

	publishing sync.Mutex
}

// service is one process, or the next one in its place.
type service struct {
	node string

	mu    sync.Mutex
	proc  *child.Process
	since time.Time
	count int           // of starts
	ahead time.Duration // by how much the clock of its host is wrong
	ready chan struct{} // closed when the process works
	did   chan answer
	error error // of the latest end

	metrics string // where its metrics are
}

// newServices returns the services, of which none is started.
func newServices() *services {
	all := &services{all: map[string]*service{}}
	for _, node := range nodes {
		all.all[node] = &service{node: node, ready: make(chan struct{}), did: make(chan answer, 16)}
	}
	return all
}

// start starts all processes, which end with ctx.
func (s *services) start(ctx context.Context) {
	for _, one := range s.all {
		s.running.Go(func() { one.keep(ctx, s) })
	}
}

// keep runs the process, again and again.
func (s *service) keep(ctx context.Context, all *services) {
	for ctx.Err() == nil {
		err := s.run(ctx, all)
		s.ends(err)
		sleep(ctx, time.Second)
	}
}

// run runs the process once.
func (s *service) run(ctx context.Context, all *services) error {
	common := all.settings
	s.mu.Lock()
	common.Node, common.Ahead = s.node, s.ahead
	proc, err := child.Start(ctx, workerEnv, common)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.proc, s.since = proc, time.Now()
	s.count++
	ready := s.ready
	s.mu.Unlock()
	for {
		var a answer
		ok, err := proc.Next(&a)
		switch {
		case !ok:
			return errors.Join(err, proc.Wait())
		case a.Did == "":
			s.mu.Lock()
			s.metrics = a.Metrics
			s.mu.Unlock()
			if err := all.publish(); err != nil {
				return err
			}
			close(ready)
		default:
			s.did <- a
		}
	}
}

// publish writes where the metrics of the processes are, as Prometheus reads it.
func (s *services) publish() error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, node := range nodes {
		one := s.all[node]
		one.mu.Lock()
		if one.metrics != "" {
			groups = append(groups, group{[]string{one.metrics}, map[string]string{"instance": node}})
		}
		one.mu.Unlock()
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if err := os.WriteFile(s.targets+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.targets+".new", s.targets)
}

// ends says that the process ends: a call that needs one waits for the next.
func (s *service) ends(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.error = err; s.proc != nil {
		s.proc, s.ready = nil, make(chan struct{})
	}
}

// works waits until the process works, and returns it.
func (s *service) works(ctx context.Context) (*child.Process, error) {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s does not work: %w", s.node, errors.Join(context.Cause(ctx), s.error))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil, fmt.Errorf("%s has ended", s.node)
	}
	return s.proc, nil
}

// awaitAll waits until all processes work.
func (s *services) awaitAll(ctx context.Context) error {
	for _, one := range s.all {
		if _, err := one.works(ctx); err != nil {
			return err
		}
	}
	return nil
}

// order has a process cause a fault in itself.
func (s *services) order(ctx context.Context, node, do, name string) error {
	one := s.all[node]
	proc, err := one.works(ctx)
	if err != nil {
		return err
	}
	if err := proc.Order(order{do, name}); err != nil {
		return err
	}
	select {
	case a := <-one.did:
		if a.Error != "" {
			return fmt.Errorf("%s: %s %s: %s", node, do, name, a.Error)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill kills a process. The next one starts by itself.
func (s *services) kill(ctx context.Context, node string) error {
	proc, err := s.all[node].works(ctx)
	if err != nil {
		return err
	}
	s.all[node].ends(nil)
	return proc.Kill()
}

// restart ends a process, as an operator does. The next one starts by itself, with the clock of its host.
func (s *services) restart(ctx context.Context, node string) error {
	proc, err := s.all[node].works(ctx)
	if err != nil {
		return err
	}
	s.all[node].ends(nil)
	proc.Leave()
	return nil
}

// turn makes the clock of a host wrong by a time, or right. The process sees it when it starts again, at once.
func (s *services) turn(ctx context.Context, node string, ahead time.Duration) error {
	one := s.all[node]
	one.mu.Lock()
	one.ahead = ahead
	one.mu.Unlock()
	return s.restart(ctx, node)
}

// ServeHTTP shows the processes, and restarts one: POST /restart/node-1, or /set-clock/node-1 to set the clock of its
// host, too.
func (s *services) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(out http.ResponseWriter, _ *http.Request) {
		for _, node := range nodes {
			one := s.all[node]
			one.mu.Lock()
			state := "ends, and starts again"
			if one.proc != nil {
				state = fmt.Sprintf("process %d, since %s, started %d times", one.proc.ID(), one.since.UTC().Format(time.RFC3339), one.count)
			}
			fmt.Fprintf(out, "%s  %s, http://%s/metrics\n", node, state, one.metrics)
			one.mu.Unlock()
		}
	})
	act := func(path string, do func(ctx context.Context, node string) error) {
		mux.HandleFunc("POST "+path+"/{node}", func(out http.ResponseWriter, r *http.Request) {
			node := r.PathValue("node")
			if s.all[node] == nil {
				http.NotFound(out, r)
				return
			}
			if err := do(r.Context(), node); err != nil {
				http.Error(out, err.Error(), http.StatusConflict)
				return
			}
			fmt.Fprintln(out, "done")
		})
	}
	act("/restart", s.restart)
	act("/set-clock", func(ctx context.Context, node string) error { return s.turn(ctx, node, 0) })
	mux.ServeHTTP(out, r)
}
