package embedtest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// link is the network between one client and all servers. Both directions of every
// connection pass through queues, and the link decides when they deliver. A connection so
// behaves as TCP does over a bad network: bytes are late or the connection ends, but no
// bytes are lost inside a connection.
type link struct {
	mu      sync.Mutex
	all     reach            // of all servers
	single  map[string]reach // of single servers, by address; the worse of both counts
	delay   time.Duration
	changed chan struct{} // closed and replaced when one of the above changes
	conns   map[*linkConn]struct{}
}

// reach is what the link does to the bytes between the client and a server.
type reach int

const (
	open reach = iota
	hole       // holds them
	cut        // closes the connection
)

// to returns the reach of a server. The caller holds l.mu.
func (l *link) to(addr string) reach { return max(l.all, l.single[addr]) }

var errCut = errors.New("embedtest: connect: the network is cut (Client.Cut, ended by Client.Heal)")

func newLink() *link {
	return &link{single: make(map[string]reach), changed: make(chan struct{}), conns: make(map[*linkConn]struct{})}
}

// Cut closes the client's connections and refuses new ones until Heal. Requests in flight
// fail at once, whether or not etcd applied them. New requests wait for a connection until
// their context ends, as etcd's client always does.
func (cl *Client) Cut() { cl.link.set(func(l *link) { l.all = cut }) }

// CutFrom is Cut for the connections to one member. etcd's client then uses the other
// members. CutFrom panics for a member that does not exist.
func (cl *Client) CutFrom(member int) {
	addr := cl.address(member)
	cl.link.set(func(l *link) { l.single[addr] = cut })
}

// BlackHole keeps the client's connections open and delivers no bytes in either direction
// until Heal. New connections hang. No call fails by itself: requests wait until their
// context ends. As TCP retransmits, the bytes arrive after Heal on connections that are
// still open: etcd may then apply a request that was sent during the black hole.
func (cl *Client) BlackHole() { cl.link.set(func(l *link) { l.all = hole }) }

// BlackHoleFrom is BlackHole for the connections to one member. etcd's client still sends
// requests to that member, in turn with the others. BlackHoleFrom panics for a member that
// does not exist.
func (cl *Client) BlackHoleFrom(member int) {
	addr := cl.address(member)
	cl.link.set(func(l *link) { l.single[addr] = hole })
}

// Delay delays every byte by d in each direction until Heal. The order is kept and the rate
// is not limited. The delay also applies to bytes in flight. Zero ends the delay.
func (cl *Client) Delay(d time.Duration) { cl.link.set(func(l *link) { l.delay = max(d, 0) }) }

// Heal ends Cut, CutFrom, BlackHole, BlackHoleFrom and Delay, and resets the client's
// back-off, so that it reconnects at once. Injections stay in force.
func (cl *Client) Heal() {
	cl.link.set(func(l *link) {
		l.all, l.delay = open, 0
		clear(l.single)
	})
	if conn := cl.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff()
	}
}

// address returns the address that the dialer gets for a member: its endpoint without the
// scheme.
func (cl *Client) address(member int) string {
	_, addr, _ := strings.Cut(cl.c.Endpoints()[member], "://")
	return addr
}

// set changes the state of the link, wakes its waiters and closes the connections that are
// cut now. Their lanes are closed first: what a black hole held is not delivered.
func (l *link) set(change func(*link)) {
	l.mu.Lock()
	change(l)
	close(l.changed)
	l.changed = make(chan struct{})
	var ended []*linkConn
	for c := range l.conns {
		if l.to(c.addr) == cut {
			c.in.close()
			c.out.close()
			ended = append(ended, c)
		}
	}
	l.mu.Unlock()
	for _, c := range ended {
		_ = c.Close()
	}
}

// due returns how long bytes that a server or its client sent at that time still have to
// wait; a negative wait ends only with a change of the link. The channel is closed at the
// next change.
func (l *link) due(addr string, sent time.Time) (time.Duration, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to(addr) == hole {
		return -1, l.changed
	}
	if l.delay == 0 {
		return 0, l.changed
	}
	return max(time.Until(sent.Add(l.delay)), 0), l.changed
}

// dial is the client's dialer. addr is what etcd's resolver returns for an endpoint:
// host:port, or unix:path.
func (l *link) dial(ctx context.Context, addr string) (net.Conn, error) {
	for {
		l.mu.Lock()
		reached, changed := l.to(addr), l.changed
		l.mu.Unlock()
		if reached == cut {
			return nil, errCut
		}
		if reached == open {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	network, target := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, target = "unix", strings.TrimPrefix(path, "//")
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, target)
	if err != nil {
		return nil, err
	}
	c := &linkConn{Conn: raw, link: l, addr: addr, in: newLane(l, addr), out: newLane(l, addr)}
	l.mu.Lock()
	cutNow := l.to(addr) == cut
	if !cutNow {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if cutNow {
		_ = raw.Close()
		return nil, errCut
	}
	go c.receive()
	go c.send()
	return c, nil
}
