package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Process simulates one client process: connections of its own and a session on
// them. It can die and start anew; then both are others.
type Process struct {
	Env  *Env
	Name string
	plan processPlan
	rec  *history.Client

	turn sync.Mutex // one opening or closing at a time

	mu      sync.Mutex
	client  *embedtest.Client
	session Session
	past    int // logins of former clients
}

// Session is a process's session, on a lease.
type Session interface {
	// Lease returns the present lease, or 0.
	Lease() clientv3.LeaseID
	// Close ends the session; ctx bounds how long it waits for holders.
	Close(ctx context.Context) error
}

// processPlan is what the seed decides about a process.
type processPlan struct {
	ttl, margin time.Duration
	endpoints   []string // nil: of all members
	proxied     bool     // etcd's gRPC proxy is between
}

// Client returns the process's connections.
func (p *Process) Client() *embedtest.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client
}

// Session returns the process's session, or nil while there is none.
func (p *Process) Session() Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// logins counts how often the process has sent its password.
func (p *Process) logins() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == nil {
		return p.past
	}
	return p.past + p.client.Requests()["Authenticate"]
}

// open starts the process, or a session on the connections that it has.
func (p *Process) open(ctx context.Context) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.openLocked(ctx)
}

func (p *Process) openLocked(ctx context.Context) error {
	if p.Session() != nil {
		return nil
	}
	client := p.Client()
	if client == nil {
		c, err := p.Env.Cluster.Dial(ctx, &embedtest.ClientOptions{
			Endpoints: p.plan.endpoints, Username: p.Env.user, Password: p.Env.password,
		})
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		p.mu.Lock()
		p.client, client = c, c
		p.mu.Unlock()
	}
	call := p.rec.Call(history.Event{Name: history.Open, Until: deadline(ctx)})
	s, err := p.Env.open(ctx, p, client)
	if err != nil {
		call.Done(err, nil)
		return fmt.Errorf("session: %w", err)
	}
	call.Return(history.Event{Outcome: history.OK, Lease: int64(s.Lease())})
	p.mu.Lock()
	p.session = s
	p.mu.Unlock()
	p.Env.Stats.Add("sessions", 1)
	return nil
}

// close ends the session in good order; ctx bounds how long it waits for holders.
func (p *Process) close(ctx context.Context) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.closeLocked(ctx)
}

func (p *Process) closeLocked(ctx context.Context) error {
	p.mu.Lock()
	s := p.session
	p.session = nil
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	call := p.rec.Call(history.Event{Name: history.Close, Lease: int64(s.Lease())})
	err := s.Close(ctx)
	call.Done(err, nil)
	return err
}

// reopen closes the session and starts another on the same connections.
func (p *Process) reopen(ctx context.Context, wait time.Duration) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	bounded, cancel := context.WithTimeout(ctx, wait)
	err := p.closeLocked(bounded)
	cancel()
	if p.Client() == nil {
		return err // it has died meanwhile
	}
	return errors.Join(err, p.openLocked(ctx))
}

// die ends the process without closing its session.
func (p *Process) die() {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	c, s := p.client, p.session
	p.client, p.session = nil, nil
	if c != nil {
		p.past += c.Requests()["Authenticate"]
	}
	p.mu.Unlock()
	if s != nil {
		call := p.rec.Call(history.Event{Name: history.Die, Lease: int64(s.Lease())})
		defer call.Return(history.Event{Outcome: history.OK})
	}
	if c != nil {
		c.Cut() // so that nothing more gets out
		_ = c.Close()
	}
	if s != nil {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(gone)
	}
}
