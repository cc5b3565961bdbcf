package etcdfake

import (
	"context"
	"io"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// The streams that a Server has.
const (
	watching  = "Watch"
	keepAlive = "LeaseKeepAlive"
)

// remote is the server's side of a stream.
type remote interface {
	// take takes a message of the client's. One that waits at the server is taken again
	// when the channel is closed.
	take(msg any) (again <-chan struct{})
	end()    // the client sends nothing more
	forget() // the stream has ended
}

// stream opens a stream of watches or renewals.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, fullMethod string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	method := path.Base(fullMethod)
	if method != watching && method != keepAlive {
		if c.server.real != nil {
			return streamer(ctx, desc, cc, fullMethod, opts...)
		}
		return nil, notSupported(method)
	}
	conn, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	t := &clientStream{client: c, ctx: ctx, method: method, opts: opts, conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	if c.server.real != nil {
		err = t.openReal(desc, cc, fullMethod, streamer, opts)
	} else {
		err = t.openFake()
	}
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, t.remote.forget)
	return t, nil
}

// openFake adds the stream to those of the server.
func (t *clientStream) openFake() error {
	s := t.client.server
	r := &serverStream{server: s, send: t.receive, fail: t.fail, snap: t.snap, require: requiresLeader(t.ctx), opened: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.require && !isClosed(s.leader) {
		return errNoLeader
	}
	s.streams = append(s.streams, r)
	t.remote = r
	return nil
}

// parcel is a message of a stream.
type parcel struct {
	msg any
	at  time.Time // when it arrives; of an answer, when it was sent
	err error     // with which the stream ends when it has arrived
}

// clientStream is a stream as its client sees it. Like any stream of gRPC's it has at
// most one sender and one receiver at a time.
type clientStream struct {
	client *Client
	ctx    context.Context
	method string
	opts   []grpc.CallOption
	remote remote
	conn   *connection

	mu     sync.Mutex
	up     []parcel
	moving bool // a goroutine delivers up
	shut   bool // nothing more is sent
	down   []parcel
	wake   chan struct{} // has a value when down has
	err    error
	ended  chan struct{} // closed when err is set
}

func (t *clientStream) Context() context.Context     { return t.ctx }
func (t *clientStream) Header() (metadata.MD, error) { return nil, nil }
func (t *clientStream) Trailer() metadata.MD         { return nil }

// CloseSend ends the stream when all that was sent has arrived.
func (t *clientStream) CloseSend() error {
	t.mu.Lock()
	t.shut = true
	t.mu.Unlock()
	t.move()
	return nil
}

// SendMsg puts a message on its way. It never blocks.
func (t *clientStream) SendMsg(msg any) error {
	if t.ctx.Err() != nil || isClosed(t.ended) || isClosed(t.conn.broken) {
		return io.EOF // gRPC's way: RecvMsg has the reason
	}
	body, size := clone(msg)
	if err := tooLarge(size, t.opts); err != nil && t.client.server.real == nil {
		return err
	}
	fault := t.client.link.meet(Message{Method: t.method, Body: msg})
	switch {
	case fault.DropRequest && fault.Err != nil:
		t.snap(fault.Err)
		return io.EOF
	case fault.DropRequest:
		return nil
	}
	t.mu.Lock()
	t.up = append(t.up, parcel{body, time.Now().Add(fault.RequestDelay), fault.Err})
	t.mu.Unlock()
	t.move()
	return nil
}

// move delivers what is due, in order, and leaves the rest to a goroutine.
func (t *clientStream) move() {
	t.mu.Lock()
	if t.moving {
		t.mu.Unlock()
		return
	}
	t.moving = true
	t.mu.Unlock()
	t.deliver()
}

func (t *clientStream) deliver() {
	s := t.client.server
	for {
		t.mu.Lock()
		if len(t.up) == 0 {
			shut := t.shut
			t.moving = false
			t.mu.Unlock()
			if shut {
				t.remote.end()
			}
			return
		}
		next := t.up[0]
		t.mu.Unlock()
		s.mu.Lock()
		ready := isClosed(s.leader) || local(next.msg)
		s.mu.Unlock()
		if delay := time.Until(next.at); delay > 0 || !ready || !isClosed(t.client.link.gate()) {
			s.background(func() {
				if !s.travel(max(delay, 0), t.client.link, t.conn) {
					return
				}
				if !local(next.msg) {
					if err := s.waitLeader(false); err != nil {
						t.fail(err)
						return
					}
				}
				if t.arrive(next) {
					t.deliver()
				}
			})
			return
		}
		if !t.arrive(next) {
			return
		}
	}
}

// arrive gives the first message to the server, unless the stream has ended. If the message
// waits there it returns false, and delivers it again in time.
func (t *clientStream) arrive(p parcel) bool {
	s := t.client.server
	t.mu.Lock()
	over := t.err != nil
	t.mu.Unlock()
	if !over && t.ctx.Err() == nil && !isClosed(t.conn.broken) {
		again := t.remote.take(p.msg)
		if p.err != nil {
			t.snap(p.err)
		}
		if again != nil {
			s.background(func() {
				select {
				case <-again:
					t.deliver()
				case <-s.done:
				}
			})
			return false
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up = t.up[1:]
	return true
}

// receive puts an answer on its way. The server is locked.
func (t *clientStream) receive(msg any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = append(t.down, parcel{msg, time.Now(), nil})
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// fail ends the stream, as a server does: what it has sent before is received. It may be called with the server locked.
func (t *clientStream) fail(err error) { t.end(err, false) }

// snap ends the stream, as a network does: what was sent is lost. It may be called with the server locked.
func (t *clientStream) snap(err error) { t.end(err, true) }

func (t *clientStream) end(err error, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lost {
		t.down = nil
	}
	if t.err == nil {
		t.err = err
		close(t.ended)
	}
}

// RecvMsg waits for the next answer.
func (t *clientStream) RecvMsg(msg any) error {
	err := t.next(msg)
	if err != nil {
		t.fail(err)
		t.remote.forget()
	}
	return err
}

func (t *clientStream) next(msg any) error {
	w := waiter{client: t.client, ctx: t.ctx, broken: t.conn.broken}
	for {
		t.mu.Lock()
		var p *parcel
		if len(t.down) > 0 { // sent before the end, if there is one
			p = &t.down[0]
			t.down = t.down[1:]
		} else if t.err != nil {
			defer t.mu.Unlock()
			return t.err
		}
		t.mu.Unlock()
		if p == nil {
			if err := t.sleep(); err != nil {
				return err
			}
			continue
		}
		fault := t.client.link.meet(Message{Method: t.method, Response: true, Body: p.msg})
		if fault.Err != nil {
			return fault.Err
		}
		if fault.DropResponse {
			continue
		}
		if err := w.sleep(time.Until(p.at.Add(fault.ResponseDelay))); err != nil {
			return err
		}
		if err := w.wait(t.client.link.gate()); err != nil {
			return err
		}
		copyAnswer(msg, p.msg, t.client.server)
		return nil
	}
}

// sleep waits until there may be an answer.
func (t *clientStream) sleep() error {
	select {
	case <-t.wake:
		return nil
	case <-t.ended:
		return nil
	case <-t.ctx.Done():
		return ctxErr(t.ctx)
	case <-t.conn.broken:
		return errUnavailable
	case <-t.client.link.closed:
		return errClosing
	case <-t.client.server.done:
		return errUnavailable
	}
}
