package etcdfake

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Message is a request or a response on its way.
type Message struct {
	Method   string // the short name of the RPC: "Txn", "Range", "LeaseGrant", "LeaseKeepAlive", "Watch"
	Response bool   // of a stream: the server has sent it
	Body     any    // of package etcdserverpb, for example *etcdserverpb.TxnRequest; not to be changed
}

// Fault is what the network does with a message. The zero value delivers it at once. A
// unary call is one message, there and back. On a stream each message has its own fault,
// and a late message delays those behind it.
type Fault struct {
	// RequestDelay is how long the request is on its way. It arrives whether or not its
	// caller still waits for the response.
	RequestDelay time.Duration

	// ResponseDelay is how long the response is on its way.
	ResponseDelay time.Duration

	// DropRequest keeps the request from the server.
	DropRequest bool

	// DropResponse keeps the response from the caller. Without Err the caller waits until
	// its context ends.
	DropResponse bool

	// Err is what the caller gets instead of a response, after ResponseDelay. The request
	// reaches the server all the same, unless DropRequest is set. On a stream, Err ends
	// the stream.
	Err error

	// Duplicate, if above 0, sends a copy of the request that arrives so long after it was
	// sent. The copy of a request that the server has refused is dropped, and so is the
	// response to a copy. Not for streams.
	Duplicate time.Duration
}

// ErrUnavailable is what gRPC returns for a call whose connection breaks: the server may
// or may not have applied the request.
var ErrUnavailable = errUnavailable

// reach is what a link does with the messages between a client and the server.
type reach int

const (
	open    reach = iota
	stalled       // holds them
	cut           // new calls wait
	refused       // new calls fail
)

// link is the network between one client and the server.
type link struct {
	mu     sync.Mutex
	inject func(Message) Fault
	reach  reach
	flows  chan struct{} // closed unless the link is stalled
	healed chan struct{} // closed unless the link is cut
	conn   *connection
	closed chan struct{}
	once   sync.Once
}

// connection lasts until the link breaks it.
type connection struct {
	broken chan struct{} // closed when it breaks
	lost   chan struct{} // closed if the link is stalled then: what the stall holds never arrives
}

func newConnection() *connection { return &connection{make(chan struct{}), make(chan struct{})} }

func newLink() *link {
	l := &link{flows: make(chan struct{}), healed: make(chan struct{}), conn: newConnection(), closed: make(chan struct{})}
	close(l.flows)
	close(l.healed)
	return l
}

func (l *link) close() { l.once.Do(func() { close(l.closed) }) }

// meet returns a message's fault.
func (l *link) meet(m Message) Fault {
	l.mu.Lock()
	inject := l.inject
	l.mu.Unlock()
	if inject == nil {
		return Fault{}
	}
	return inject(m)
}

// enter begins a call, or a stream. It waits while the link is cut, as etcd's client
// waits for a connection.
func (c *Client) enter(ctx context.Context) (*connection, error) {
	for {
		l := c.link
		l.mu.Lock()
		reach, healed, conn := l.reach, l.healed, l.conn
		l.mu.Unlock()
		switch {
		case isClosed(l.closed):
			return nil, errClosing
		case reach == refused:
			return nil, errUnavailable
		case ctx.Err() != nil:
			return nil, ctxErr(ctx)
		case reach != cut:
			return conn, nil
		}
		if err := (waiter{client: c, ctx: ctx}).wait(healed); err != nil {
			return nil, err
		}
	}
}

var errClosing = status.Error(codes.Canceled, "etcdfake: the client is closed")

func (l *link) gate() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flows
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// set changes what the link does. A connection breaks before the messages flow again.
func (l *link) set(to reach) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to == cut || to == refused {
		l.snap()
	}
	l.reach = to
	shut(&l.flows, to == stalled)
	shut(&l.healed, to == cut)
}

// shut makes a channel one that is not closed, or closes it.
func shut(c *chan struct{}, yes bool) {
	switch {
	case yes && isClosed(*c):
		*c = make(chan struct{})
	case !yes && !isClosed(*c):
		close(*c)
	}
}

// snap breaks the connection. The link is locked.
func (l *link) snap() {
	if l.reach == stalled {
		close(l.conn.lost)
	}
	close(l.conn.broken)
	l.conn = newConnection()
}

// Inject has a function decide over the fault of each message of this client. The function
// is called by the goroutines that send and receive, several at a time, and must not
// block. etcd's client retries outside of it: each retry is a message of its own. A nil
// function ends the faults.
func (c *Client) Inject(f func(Message) Fault) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.inject = f
}

// Cut breaks the connection: streams and calls under way end with ErrUnavailable, whether
// or not the server applied them. New calls wait until Heal or the end of their context,
// as etcd's client does while it has no connection. Cut ends Stall and Refuse; what Stall
// held is lost.
func (c *Client) Cut() { c.link.set(cut) }

// Refuse is Cut, except that new calls fail with ErrUnavailable at once, as behind a proxy
// without a backend.
func (c *Client) Refuse() { c.link.set(refused) }

// Stall holds all messages of this client in both directions, as a network does that
// drops every packet, or a process that is stopped: neither side notices. What is sent
// meanwhile arrives after the stall, whether or not its caller still waits. Stall ends
// Cut and Refuse.
func (c *Client) Stall() { c.link.set(stalled) }

// Heal ends Cut, Refuse and Stall. Faults of Inject stay in force.
func (c *Client) Heal() { c.link.set(open) }

// Break breaks the connection once: streams and calls under way end with ErrUnavailable,
// and the next ones get through.
func (c *Client) Break() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.snap()
}
