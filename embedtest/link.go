package embedtest

import (
	"context"
	"errors"
	"io"
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

// linkConn is one connection. A Write never blocks: HTTP/2 flow control bounds
// what can be under way.
type linkConn struct {
	net.Conn
	link    *link
	in, out *lane
	once    sync.Once
}

func (c *linkConn) Read(p []byte) (int, error)  { return c.in.take(p) }
func (c *linkConn) Write(p []byte) (int, error) { return c.out.put(p, nil) }

// Deadlines have no effect: gRPC bounds its calls by closing the connection.
func (c *linkConn) SetDeadline(time.Time) error      { return nil }
func (c *linkConn) SetReadDeadline(time.Time) error  { return nil }
func (c *linkConn) SetWriteDeadline(time.Time) error { return nil }

func (c *linkConn) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		c.in.close()
		c.out.close()
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
	})
	return err
}

func (c *linkConn) receive() {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Conn.Read(buf)
		if _, gone := c.in.put(buf[:n], err); err != nil || gone != nil {
			return
		}
	}
}

func (c *linkConn) send() {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.out.take(buf)
		if err != nil {
			return
		}
		if _, err = c.Conn.Write(buf[:n]); err != nil {
			return // the reading side learns of it too
		}
	}
}

// lane is one direction of a connection: bytes with the time they were sent.
type lane struct {
	link   *link
	wake   chan struct{} // of capacity 1: there is something to take
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	chunks []chunk
}

type chunk struct {
	sent  time.Time
	bytes []byte
	err   error // after the bytes
}

func newLane(l *link) *lane {
	return &lane{link: l, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (l *lane) close() { l.once.Do(func() { close(l.closed) }) }

func (l *lane) put(p []byte, end error) (int, error) {
	select {
	case <-l.closed:
		return 0, net.ErrClosed
	default:
	}
	c := chunk{sent: time.Now(), bytes: append([]byte(nil), p...), err: end}
	l.mu.Lock()
	l.chunks = append(l.chunks, c)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// take waits until the oldest bytes are due and returns them. There is one
// taker per lane.
func (l *lane) take(p []byte) (int, error) {
	for {
		l.mu.Lock()
		head := chunk{}
		some := len(l.chunks) > 0
		if some {
			head = l.chunks[0]
		}
		l.mu.Unlock()

		var changed <-chan struct{}
		var timer <-chan time.Time
		if some {
			var wait time.Duration
			if wait, changed = l.link.due(head.sent); wait == 0 {
				return l.advance(p)
			} else if wait > 0 {
				timer = time.After(wait)
			}
		}
		select {
		case <-l.wake:
		case <-changed:
		case <-timer:
		case <-l.closed:
			return 0, io.EOF
		}
	}
}

func (l *lane) advance(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	head := &l.chunks[0]
	n := copy(p, head.bytes)
	if head.bytes = head.bytes[n:]; len(head.bytes) > 0 {
		return n, nil
	}
	err := head.err
	if err != nil && n > 0 {
		return n, nil // the error stays for the next take
	}
	if err == nil {
		l.chunks[0] = chunk{}
		l.chunks = l.chunks[1:]
	}
	return n, err
}
