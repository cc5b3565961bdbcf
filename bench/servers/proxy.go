package servers

import (
	"net"
	"sync"
	"time"
)

// Proxy delays each byte of a connection on its way, without making it slower.
type Proxy struct {
	listener net.Listener
	target   string
	delay    time.Duration // in each direction

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// StartProxy returns a proxy to target whose round trip takes rtt longer.
func StartProxy(target string, rtt time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, delay: rtt / 2, conns: map[net.Conn]bool{}}
	p.wg.Go(p.serve)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
}

// keep has Close end the connection; false if that has happened.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !p.keep(in) || !p.keep(out) {
			_, _ = in.Close(), out.Close()
			return
		}
		p.wg.Go(func() { p.pipe(in, out) })
		p.wg.Go(func() { p.pipe(out, in) })
	}
}

// chunk is bytes with the time at which they leave.
type chunk struct {
	bytes []byte
	at    time.Time
}

// pipe passes what it reads, each chunk after the delay.
func (p *Proxy) pipe(from, to net.Conn) {
	chunks := make(chan chunk, 1024)
	p.wg.Go(func() {
		for c := range chunks {
			time.Sleep(time.Until(c.at))
			if _, err := to.Write(c.bytes); err != nil {
				break
			}
		}
		_, _ = from.Close(), to.Close()
		for range chunks { // until the reader has noticed
		}
	})
	defer close(chunks)
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			chunks <- chunk{buf[:n], time.Now().Add(p.delay)}
		}
		if err != nil {
			return
		}
	}
}
