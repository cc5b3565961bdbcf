package embedtest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// link is the network between one client and all servers. Both directions of
// every connection pass through queues whose delivery the link decides, so a
// connection behaves as TCP does over a bad network: nothing is lost inside a
// connection, it is late, or the connection ends.
type link struct {
	mu      sync.Mutex
	state   reach            // of all servers
	towards map[string]reach // of single ones, by address, beyond state
	delay   time.Duration
	changed chan struct{} // closed and replaced whenever the above change
	conns   map[*linkConn]struct{}
}

// reach is how far a client's bytes get.
type reach int

const (
	open reach = iota
	hole
	cut // the strongest
)

// to says how far bytes get to and from a server. It needs l.mu.
func (l *link) to(addr string) reach { return max(l.state, l.towards[addr]) }

var errCut = errors.New("embedtest: the client's network is cut")

func newLink() *link {
	return &link{towards: make(map[string]reach), changed: make(chan struct{}), conns: make(map[*linkConn]struct{})}
}

// Cut closes the client's connections and refuses new ones until Heal.
// Requests under way fail at once, whether or not they were applied; new ones
// wait for a connection until their context ends, as etcd's client always does.
func (cl *Client) Cut() { cl.link.set(func(l *link) { l.state = cut }) }

// CutFrom is Cut for the connections to one member; the other members are still
// reached, and etcd's client turns to them. It panics for a member that does not
// exist.
func (cl *Client) CutFrom(member int) {
	addr := cl.address(member)
	cl.link.set(func(l *link) { l.towards[addr] = cut })
}

// BlackHole keeps the client's connections open while bytes go nowhere in
// either direction; new connections hang. Nothing fails by itself: requests
// wait for their context. As in a real network the bytes are not lost, TCP
// would repeat them: after Heal they arrive, unless the connection was given
// up by then. In particular a request sent into the hole may still be applied.
func (cl *Client) BlackHole() { cl.link.set(func(l *link) { l.state = hole }) }

// BlackHoleFrom is BlackHole for the connections to one member. etcd's client
// goes on sending requests there in turn. It panics for a member that does not
// exist.
func (cl *Client) BlackHoleFrom(member int) {
	addr := cl.address(member)
	cl.link.set(func(l *link) { l.towards[addr] = hole })
}

// Delay delays every byte by d in each direction, in order, and without
// limiting the rate. It applies to bytes under way too. Zero ends the delay.
func (cl *Client) Delay(d time.Duration) { cl.link.set(func(l *link) { l.delay = max(d, 0) }) }

// Heal ends Cut, BlackHole and Delay, and makes the client reconnect without
// waiting for its back-off. Injections stay in force.
func (cl *Client) Heal() {
	cl.link.set(func(l *link) {
		l.state, l.delay = open, 0
		clear(l.towards)
	})
	if conn := cl.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff()
	}
}

// address is what the dialer gets for a member: its endpoint without the scheme.
func (cl *Client) address(member int) string {
	_, addr, _ := strings.Cut(cl.c.Endpoints()[member], "://")
	return addr
}

// set changes the link's state, wakes everyone who waits on it and ends the
// connections that are cut by it.
func (l *link) set(change func(*link)) {
	l.mu.Lock()
	change(l)
	close(l.changed)
	l.changed = make(chan struct{})
	var ended []*linkConn
	for c := range l.conns {
		if l.to(c.addr) == cut {
			ended = append(ended, c)
		}
	}
	l.mu.Unlock()
	for _, c := range ended {
		_ = c.Close()
	}
}

// due says how long bytes that were sent to or by a server at that time still have
// to wait, negative for as long as the link does not change, and returns a channel
// that is closed when the answer may have changed.
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

// dial is the client's dialer; addr is what etcd's resolver makes of an
// endpoint: host:port, or unix:path.
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
	late := l.to(addr) == cut
	if !late {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if late {
		_ = raw.Close()
		return nil, errCut
	}
	go c.receive()
	go c.send()
	return c, nil
}
