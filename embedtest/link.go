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
	cut     bool
	hole    bool
	delay   time.Duration
	changed chan struct{} // closed and replaced whenever the above change
	conns   map[*linkConn]struct{}
}

var errCut = errors.New("embedtest: the client's network is cut")

func newLink() *link {
	return &link{changed: make(chan struct{}), conns: make(map[*linkConn]struct{})}
}

// Cut closes the client's connections and refuses new ones until Heal.
// Requests under way fail at once, whether or not they were applied; new ones
// wait for a connection until their context ends, as etcd's client always does.
func (cl *Client) Cut() {
	l := cl.link
	l.mu.Lock()
	l.cut, l.hole = true, false
	conns := l.change()
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// BlackHole keeps the client's connections open while bytes go nowhere in
// either direction; new connections hang. Nothing fails by itself: requests
// wait for their context. As in a real network the bytes are not lost, TCP
// would repeat them: after Heal they arrive, unless the connection was given
// up by then. In particular a request sent into the hole may still be applied.
func (cl *Client) BlackHole() {
	l := cl.link
	l.mu.Lock()
	l.cut, l.hole = false, true
	l.change()
	l.mu.Unlock()
}

// Delay delays every byte by d in each direction, in order, and without
// limiting the rate. It applies to bytes under way too. Zero ends the delay.
func (cl *Client) Delay(d time.Duration) {
	l := cl.link
	l.mu.Lock()
	l.delay = max(d, 0)
	l.change()
	l.mu.Unlock()
}

// Heal ends Cut, BlackHole and Delay, and makes the client reconnect without
// waiting for its back-off. Injections stay in force.
func (cl *Client) Heal() {
	l := cl.link
	l.mu.Lock()
	l.cut, l.hole, l.delay = false, false, 0
	l.change()
	l.mu.Unlock()
	if conn := cl.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff()
	}
}

// change wakes everyone who waits on the link's state. It needs l.mu.
func (l *link) change() []*linkConn {
	close(l.changed)
	l.changed = make(chan struct{})
	conns := make([]*linkConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	return conns
}

// due says how long bytes sent at that time still have to wait, negative for
// as long as the link does not change, and returns a channel that is closed
// when the answer may have changed.
func (l *link) due(sent time.Time) (time.Duration, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hole {
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
		cut, hole, changed := l.cut, l.hole, l.changed
		l.mu.Unlock()
		if cut {
			return nil, errCut
		}
		if !hole {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", strings.TrimPrefix(path, "//")
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &linkConn{Conn: raw, link: l, in: newLane(l), out: newLane(l)}
	l.mu.Lock()
	cut := l.cut
	if !cut {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if cut {
		_ = raw.Close()
		return nil, errCut
	}
	go c.receive()
	go c.send()
	return c, nil
}
