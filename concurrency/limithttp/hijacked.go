package limithttp

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// lookEvery is how often the middleware asks a connection whether it is closed, once its handler has the
// connection of the server itself (NetConn), whose Close it does not see.
const lookEvery = 100 * time.Millisecond

// hijacked is a connection that reports when it is closed.
type hijacked struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
	bare   sync.Once
	bared  chan struct{} // closed when NetConn was called
}

func newHijacked(conn net.Conn) *hijacked {
	return &hijacked{Conn: conn, closed: make(chan struct{}), bared: make(chan struct{})}
}

// Close closes the connection. It returns its error.
func (c *hijacked) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// NetConn returns the connection of the server, as that of tls.Conn does.
func (c *hijacked) NetConn() net.Conn {
	c.bare.Do(func() { close(c.bared) })
	return c.Conn
}

// closesWrite is a connection of which the side that sends can be closed alone, as httputil.ReverseProxy does.
type closesWrite interface{ CloseWrite() error }

// halfCloser is a hijacked connection that is one.
type halfCloser struct{ *hijacked }

// CloseWrite closes the side that sends. The permit is held until Close.
func (c halfCloser) CloseWrite() error { return c.Conn.(closesWrite).CloseWrite() }

// own returns the connection for the handler.
func (c *hijacked) own() net.Conn {
	if _, ok := c.Conn.(closesWrite); ok {
		return halfCloser{c}
	}
	return c
}

// wait waits until the connection is closed, here or through NetConn, or lost is closed.
func (c *hijacked) wait(lost <-chan struct{}) {
	select {
	case <-c.closed:
		return
	case <-lost:
		return
	case <-c.bared:
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for !closed(c.Conn) {
		select {
		case <-c.closed:
			return
		case <-lost:
			return
		case <-t.C:
		}
	}
}

// closed reports whether a connection of the operating system was closed by this process. It returns false for
// a type that does not show that (syscall.Conn).
func closed(conn net.Conn) bool {
	for { // crypto/tls has the connection within its own, and closes it
		within, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = within.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	return errors.Is(raw.Control(func(uintptr) {}), net.ErrClosed)
}
