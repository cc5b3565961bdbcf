package embedtest

import (
	"io"
	"net"
	"sync"
	"time"
)

// linkConn is one connection of a link. A Write never blocks: the flow control of HTTP/2
// bounds the bytes in flight.
type linkConn struct {
	net.Conn
	link    *link
	addr    string // of the server, as dialled
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
		if _, closed := c.in.put(buf[:n], err); err != nil || closed != nil {
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
			return // receive gets an error too
		}
	}
}

// lane is one direction of a connection: a queue of bytes with the times of their sending.
type lane struct {
	link   *link
	addr   string        // of the server
	wake   chan struct{} // of capacity 1; sent to by put
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	chunks []chunk
}

type chunk struct {
	sent  time.Time
	bytes []byte
	err   error // delivered after the bytes
}

func newLane(l *link, addr string) *lane {
	return &lane{link: l, addr: addr, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (l *lane) close() { l.once.Do(func() { close(l.closed) }) }

func (l *lane) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

func (l *lane) put(p []byte, end error) (int, error) {
	if l.isClosed() {
		return 0, net.ErrClosed
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

// take waits until the oldest bytes are due and moves them to p. A closed lane delivers
// nothing. Each lane has one reader.
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
			wait, changed = l.link.due(l.addr, head.sent)
			switch {
			case wait == 0 && l.isClosed(): // asked after due: a cut closes before it lets bytes pass
				return 0, io.EOF
			case wait == 0:
				return l.advance(p)
			case wait > 0:
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

// advance moves bytes of the oldest chunk to p and removes the chunk if it is empty.
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
		return n, nil // the next take returns the error
	}
	if err == nil {
		l.chunks[0] = chunk{}
		l.chunks = l.chunks[1:]
	}
	return n, err
}
