package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// fleet is the child processes: the provider, and the servers by their places behind the proxy.
type fleet struct {
	*backend.Fleet
	settings
	proxy backend.Front

	mu     sync.Mutex
	rows   [servers]member
	hungUp map[string]chan struct{}
}

// member is the server in a place behind the proxy, after earlier ones that were killed.
type member struct {
	*backend.Server
	generation int
}

func newFleet(ctx context.Context, front backend.Front, s settings) (*fleet, context.Context) {
	f := &fleet{settings: s, proxy: front, hungUp: map[string]chan struct{}{}}
	f.Sockets = front.Sockets()
	f.Fleet, ctx = backend.NewFleet(ctx, childEnv, func(_ string, e backend.Event) {
		if e.Kind == evHungUp {
			f.notice(e.Text)
		}
	})
	return f, ctx
}

// startAll starts the provider, then the servers.
func (f *fleet) startAll(ctx context.Context) error {
	provider, err := f.Start(ctx, "the provider", f.settings)
	if err != nil {
		return err
	}
	f.Provider = provider.URL
	return program.Each(servers, func(row int) error { return f.startServer(ctx, row, 1) })
}

func (f *fleet) startServer(ctx context.Context, row, generation int) error {
	s := f.settings
	s.Name = fmt.Sprintf("server-%d.%d", row+1, generation)
	started, err := f.Start(ctx, s.Name, s)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.rows[row] = member{started, generation}
	f.mu.Unlock()
	return f.proxy.Set(row, started.URL)
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
	found := -1
	var m member
	for row, one := range f.rows {
		if one.Server != nil && one.Name == name {
			found, m = row, one
		}
	}
	f.mu.Unlock()
	if found < 0 {
		return fmt.Errorf("kill %q: no such server", name)
	}
	if err := f.proxy.Set(found, ""); err != nil {
		return err
	}
	if err := f.Kill(m.Server); err != nil {
		return err
	}
	return f.startServer(ctx, found, m.generation+1)
}
