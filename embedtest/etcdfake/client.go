package etcdfake

import (
	"context"
	"errors"
	"net"
	"path"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"
)

// Client is etcd's own client, whose messages go to a Server instead of to a network.
// To the server, each is another process. Its methods may be called concurrently.
type Client struct {
	*clientv3.Client
	server *Server
	link   *link
}

// NewClient returns a client. The server closes it. If clientv3 refuses to make one,
// NewClient fails the test.
func (s *Server) NewClient() *Client {
	s.tb.Helper()
	c := &Client{server: s, link: newLink()}
	raw, err := clientv3.New(c.config())
	if err != nil {
		s.tb.Fatalf("etcdfake: make a client: %v", err)
		return nil
	}
	c.Client = raw
	s.mu.Lock()
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	// The connection is closed with the client.
	context.AfterFunc(raw.Ctx(), c.end)
	return c
}

func (c *Client) config() clientv3.Config {
	if c.server.real != nil {
		return clientv3.Config{
			Endpoints: c.server.real.endpoints,
			Logger:    zap.NewNop(),
			DialOptions: []grpc.DialOption{
				grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 100 * time.Millisecond, Multiplier: 1.5}, MinConnectTimeout: 5 * time.Second}),
				grpc.WithChainUnaryInterceptor(c.unary),
				grpc.WithChainStreamInterceptor(c.stream),
			},
		}
	}
	return clientv3.Config{
		Endpoints: []string{"etcdfake:2379"},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			// gRPC may want to connect. It fails once, and then not again for longer
			// than any test lasts.
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				return nil, errors.New("etcdfake: there is no network")
			}),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: forever, MaxDelay: forever, Multiplier: 1}}),
			// Behind etcd's own interceptor, which repeats requests.
			grpc.WithChainUnaryInterceptor(c.unary),
			grpc.WithChainStreamInterceptor(c.stream),
		},
	}
}

const forever = 100 * 365 * 24 * time.Hour

// Close closes the client. What it has sent may still arrive. The result is always nil. It takes 3 s at most, and leaves
// goroutines of etcd's client behind then: that never returns if a watch is refused while its stream ends.
func (c *Client) Close() error {
	c.server.leaves(c.link)
	c.end()
	bounded(func() { _ = c.Client.Close() })
	return nil
}

// bounded calls f and waits for it, for so long at most.
func bounded(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

const closeTimeout = 3 * time.Second

// end ends the connection.
func (c *Client) end() {
	c.link.close()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.clients, c)
}

// unary carries a request to the server and its answer back.
func (c *Client) unary(ctx context.Context, fullMethod string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	method := path.Base(fullMethod)
	conn, err := c.enter(ctx)
	if err != nil {
		return err
	}
	size := sizeOf(req)
	if err := tooLarge(size, opts); err != nil && c.server.real == nil {
		return err
	}
	fault := c.link.meet(Message{Method: method, Body: req})
	call := func(req any) (any, error) { return c.server.answer(method, req, size) }
	if c.server.real != nil {
		call = realCall(ctx, fullMethod, reply, cc, invoke, opts)
	}
	there := &delivery{client: c, conn: conn, call: call, req: req, ctx: ctx, done: make(chan struct{})}
	if !fault.DropRequest {
		there.send(fault.RequestDelay)
	}
	if fault.Duplicate > 0 {
		body, _ := clone(req)
		again := &delivery{client: c, conn: conn, call: call, req: body, ctx: ctx, done: make(chan struct{})}
		c.server.background(func() {
			if !c.server.travel(fault.Duplicate, c.link, conn) {
				return
			}
			if fault.Duplicate >= fault.RequestDelay && !fault.DropRequest { // behind it, however both were held up
				select {
				case <-there.done:
				case <-c.server.done:
					return
				}
			}
			if !there.refused() {
				again.arrive(0)
			}
		})
	}
	return waiter{client: c, ctx: ctx, broken: conn.broken}.response(there, fault, reply)
}

// response waits for the response of a request, as its fault says.
func (w waiter) response(there *delivery, fault Fault, reply any) error {
	if fault.Err != nil {
		if w.client.server.real != nil && !fault.DropRequest && fault.RequestDelay == 0 {
			if err := w.wait(there.done); err != nil { // what a fake has done at once
				return err
			}
		}
		if err := w.sleep(fault.ResponseDelay); err != nil {
			return err
		}
		return fault.Err
	}
	if err := w.wait(there.done); err != nil {
		return err
	}
	if fault.DropResponse {
		return w.wait(nil)
	}
	if err := w.sleep(fault.ResponseDelay); err != nil {
		return err
	}
	if err := w.wait(w.client.link.gate()); err != nil {
		return err
	}
	if there.err != nil {
		return there.err
	}
	copyAnswer(reply, there.resp, w.client.server)
	return nil
}

// delivery is a request on its way.
type delivery struct {
	client *Client
	conn   *connection
	call   func(req any) (any, error)
	req    any
	ctx    context.Context
	resp   any
	err    error
	done   chan struct{} // closed when the server has answered, or the request is lost
}

// send delivers the request: at once if nothing holds it up. The server keeps nothing of its memory.
func (d *delivery) send(delay time.Duration) {
	s := d.client.server
	s.mu.Lock()
	ready := isClosed(s.leader) || local(d.req) && !requiresLeader(d.ctx)
	s.mu.Unlock()
	if delay == 0 && ready && s.real == nil && isClosed(d.client.link.gate()) && !isClosed(d.conn.lost) {
		d.apply()
		return
	}
	d.req, _ = clone(d.req) // the caller may change it meanwhile
	s.background(func() { d.arrive(delay) })
}

// arrive delivers the request after a delay and as soon as messages get through.
func (d *delivery) arrive(delay time.Duration) {
	s := d.client.server
	if !s.travel(delay, d.client.link, d.conn) {
		if isClosed(d.conn.lost) {
			d.err = errUnavailable
			close(d.done)
		}
		return
	}
	if require := requiresLeader(d.ctx); require || !local(d.req) {
		if d.err = s.waitLeader(require); d.err != nil {
			close(d.done)
			return
		}
	}
	d.apply()
}

// refused reports whether the server has answered with an error.
func (d *delivery) refused() bool { return isClosed(d.done) && d.err != nil }

func (d *delivery) apply() {
	d.resp, d.err = d.call(d.req)
	close(d.done)
}

// travel waits for a delay and until messages get through. It returns false if the
// server is closed before, or the connection breaks in a stall.
func (s *Server) travel(delay time.Duration, l *link, conn *connection) bool {
	// No timer of zero: two goroutines of one bubble that find their timers due at the
	// same moment crash the race detector of Go 1.26, which has one context for both.
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.done:
			return false
		}
	}
	select {
	case <-l.gate():
	case <-conn.lost:
	case <-s.done:
		return false
	}
	return !isClosed(conn.lost) // a connection breaks before the gate opens
}

// waiter is a caller that waits for an answer.
type waiter struct {
	client *Client
	ctx    context.Context
	broken <-chan struct{}
}

// wait returns nil when c is closed, or what gRPC says if something else ends the
// call. Nothing arrives on a broken connection.
func (w waiter) wait(c <-chan struct{}) error {
	if c != nil && isClosed(c) {
		return w.alive()
	}
	select {
	case <-c:
		return w.alive()
	case <-w.ctx.Done():
		return ctxErr(w.ctx)
	case <-w.broken:
		return errUnavailable
	case <-w.client.link.closed:
		return errClosing
	case <-w.client.server.done:
		return errUnavailable
	}
}

func (w waiter) alive() error {
	if w.broken != nil && isClosed(w.broken) {
		return errUnavailable
	}
	return nil
}

func (w waiter) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	over := make(chan struct{})
	t := time.AfterFunc(d, func() { close(over) })
	defer t.Stop()
	return w.wait(over)
}

// requiresLeader reports whether a call wants a leader, or an error.
func requiresLeader(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return slices.Contains(md.Get(rpctypes.MetadataRequireLeaderKey), rpctypes.MetadataHasLeader)
}
