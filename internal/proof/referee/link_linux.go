package main

import (
	"io"
	"net"
	"sync"
)

// link passes connections on to etcd's members, until it is cut: then they stay open, and nothing passes
// any more, as on a network that drops all packets.
type link struct {
	cut   <-chan struct{}
	lis   []net.Listener
	conns sync.WaitGroup

	mu   sync.Mutex
	open []net.Conn
}

func newLink(members []string, cut <-chan struct{}) (*link, error) {
	l := &link{cut: cut}
	for _, member := range members {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			l.close()
			return nil, err
		}
		l.lis = append(l.lis, lis)
		l.conns.Go(func() { l.accept(lis, member) })
	}
	return l, nil
}

func (l *link) endpoints() (all []string) {
	for _, lis := range l.lis {
		all = append(all, lis.Addr().String())
	}
	return all
}

func (l *link) accept(lis net.Listener, member string) {
	for {
		in, err := lis.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", member)
		if err != nil {
			_ = in.Close()
			continue
		}
		l.mu.Lock()
		l.open = append(l.open, in, out)
		l.mu.Unlock()
		l.conns.Go(func() { l.copy(out, in) })
		l.conns.Go(func() { l.copy(in, out) })
	}
}

// copy passes bytes on while the link is not cut.
func (l *link) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-l.cut:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
}

func (l *link) close() {
	for _, lis := range l.lis {
		_ = lis.Close()
	}
	l.mu.Lock()
	for _, c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.conns.Wait()
}
