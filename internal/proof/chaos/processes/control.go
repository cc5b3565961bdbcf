package processes

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"sync"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
)

// Phase is a part of a run. Clients go from one to the next together.
type Phase int

// The phases, in their order.
const (
	Faults Phase = iota // workloads run and nemeses act
	Stop                // no more work
	Probe               // everything has to work
	Leave               // close the session and end
)

// Control is what clients ask the parent for. It also is the service outside etcd that
// their effects reach: registers that check tokens.
type Control struct {
	listener net.Listener
	conns    sync.WaitGroup

	mu        sync.Mutex
	phase     Phase
	closed    bool
	changed   chan struct{}
	registers map[string]chaos.Register
	done      map[Phase]map[string][]string // by client: what it found
	open      map[net.Conn]bool
}

var errOver = errors.New("the run is over")

// newControl listens on a socket.
func newControl(socket string) (*Control, error) {
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	c := &Control{
		listener: l, changed: make(chan struct{}), registers: map[string]chaos.Register{},
		done: map[Phase]map[string][]string{}, open: map[net.Conn]bool{},
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Control", &service{c}); err != nil {
		return nil, err
	}
	c.conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.open[conn] = true
			c.mu.Unlock()
			c.conns.Go(func() {
				server.ServeConn(conn)
				c.mu.Lock()
				delete(c.open, conn)
				c.mu.Unlock()
			})
		}
	})
	return c, nil
}

// close ends all that clients wait for.
func (c *Control) close() {
	c.mu.Lock()
	c.closed = true
	c.change()
	_ = c.listener.Close()
	for conn := range c.open {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.conns.Wait()
}

// change wakes all waiters. The lock is held.
func (c *Control) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// begin begins a phase.
func (c *Control) begin(p Phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = p
	c.change()
}

// wait returns when all these clients are done with a phase, or stop is closed. It
// returns what they have found, and those that are not done.
func (c *Control) wait(p Phase, stop <-chan struct{}, clients ...string) (findings, missing []string) {
	for {
		c.mu.Lock()
		findings, missing = nil, nil
		for _, name := range clients {
			found, ok := c.done[p][name]
			if !ok {
				missing = append(missing, name)
			}
			findings = append(findings, found...)
		}
		changed := c.changed
		c.mu.Unlock()
		if len(missing) == 0 {
			return findings, nil
		}
		select {
		case <-changed:
		case <-stop:
			return findings, missing
		}
	}
}

// service is what a client can call.
type service struct{ c *Control }

// Offer is a write to a register.
type Offer struct {
	Register string
	Token    int64
}

// Answer says what became of an offer.
type Answer struct {
	Accepted bool
	Number   int64
}

// Write offers a write to a register. The error is always nil.
func (s *service) Write(o Offer, a *Answer) error {
	s.c.mu.Lock()
	r := s.c.registers[o.Register]
	if r == nil {
		r = chaos.NewRegister()
		s.c.registers[o.Register] = r
	}
	s.c.mu.Unlock()
	a.Accepted, a.Number = r.Write(o.Token)
	return nil
}

// Next returns the present phase once it is later than that one. It returns an
// error when the run is over.
func (s *service) Next(have Phase, next *Phase) error {
	for {
		s.c.mu.Lock()
		now, closed, changed := s.c.phase, s.c.closed, s.c.changed
		s.c.mu.Unlock()
		switch {
		case closed:
			return errOver
		case now > have:
			*next = now
			return nil
		}
		<-changed
	}
}

// Report is what a client says at the end of a phase.
type Report struct {
	Client   string
	Phase    Phase
	Findings []string
}

// Done takes a client's report. The error is always nil.
func (s *service) Done(r Report, _ *struct{}) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.done[r.Phase] == nil {
		s.c.done[r.Phase] = map[string][]string{}
	}
	for i, f := range r.Findings {
		r.Findings[i] = fmt.Sprintf("%s: %s", r.Client, f)
	}
	s.c.done[r.Phase][r.Client] = r.Findings
	s.c.change()
	return nil
}
