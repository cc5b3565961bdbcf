package embedtest

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// front is the peer address that a member advertises, if it has peers. It forwards each
// connection to the member's peer listener, so that a stop of the member can close them.
// etcd leaves some open: those over which a peer asked for its version. etcd's shutdown then
// waits a second for them, and their goroutines live for another five.
type front struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	open  bool
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func newFront(target string) (*front, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("embedtest: listen for peers: %w", err)
	}
	f := &front{ln: ln, target: target, conns: make(map[net.Conn]struct{})}
	f.wg.Go(f.accept)
	return f, nil
}

func (f *front) addr() string { return f.ln.Addr().String() }

// lift ends sever: connections are forwarded.
func (f *front) lift() {
	f.mu.Lock()
	f.open = true
	f.mu.Unlock()
}

// sever closes all connections and refuses new ones.
func (f *front) sever() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *front) close() {
	_ = f.ln.Close()
	f.sever()
	f.wg.Wait()
}

func (f *front) accept() {
	for {
		in, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.forward(in) })
	}
}

func (f *front) forward(in net.Conn) {
	defer in.Close()
	if !f.keep(in) {
		return
	}
	defer f.forget(in)
	out, err := net.Dial("tcp4", f.target)
	if err != nil {
		return
	}
	defer out.Close()
	if !f.keep(out) {
		return
	}
	defer f.forget(out)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in)
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(in, out)
	_ = in.Close() // ends the copy of the other direction
	<-done
}

func (f *front) keep(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open {
		f.conns[c] = struct{}{}
	}
	return f.open
}

func (f *front) forget(c net.Conn) {
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
}
