package fakeetcd

import (
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Message is a request or an answer on its way.
type Message struct {
	Method string // as in "Txn", "Range", "LeaseGrant", "LeaseKeepAlive", "Watch"
	Answer bool   // of a stream: it comes from the server
	Body   any    // of package etcdserverpb; not to be changed
}

// Fate is what the network does with a message. The zero value delivers it at once. A
// request that has one answer meets its fate as one message, there and back; on a
// stream each message has its own, in order: a slow one delays those behind it.
type Fate struct {
	// Before is how long the request is on its way. Whether its caller still waits
	// for the answer makes no difference to it.
	Before time.Duration
	// After is how long the answer is on its way.
	After time.Duration
	// LoseRequest: it never arrives.
	LoseRequest bool
	// LoseAnswer: it never arrives. Without Err the caller waits until its context
	// ends.
	LoseAnswer bool
	// Err is what the caller gets, After later, instead of an answer; what becomes
	// of the request does not depend on it. On a stream it is how the stream ends.
	Err error
	// Again, if above 0, has a copy of the request arrive so long after it was sent:
	// before it, if that is less than Before. A copy of what was refused does not come.
	// The answer to the copy is dropped. Not for streams.
	Again time.Duration
}

// ErrUnavailable is what gRPC says of a call when its connection breaks: what became
// of the request is not known.
var ErrUnavailable = errUnavailable

// link is the network between one client and the server.
type link struct {
	mu     sync.Mutex
	fate   func(Message) Fate
	flows  chan struct{} // closed while messages get through
	broken chan struct{} // closed when the connection breaks
	cut    bool
	closed chan struct{}
	once   sync.Once
}

func newLink() *link {
	l := &link{flows: make(chan struct{}), broken: make(chan struct{}), closed: make(chan struct{})}
	close(l.flows)
	return l
}

// meet returns a message's fate.
func (l *link) meet(m Message) Fate {
	l.mu.Lock()
	fate := l.fate
	l.mu.Unlock()
	if fate == nil {
		return Fate{}
	}
	return fate(m)
}

// state returns channels that are closed while messages get through, and when the
// connection breaks.
func (l *link) state() (flows, broken <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return nil, nil, errClosing
	default:
	}
	if l.cut {
		return nil, nil, errUnavailable
	}
	return l.flows, l.broken, nil
}

var errClosing = status.Error(codes.Canceled, "fakeetcd: the client is closed")

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

// Inject has a function decide over the fate of each message of this client. It is
// called by the goroutines that send and receive, several at a time, and must not
// block. nil ends that.
func (c *Client) Inject(fate func(Message) Fate) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.fate = fate
}

// Stall holds up all messages of this client in both directions, as a network does
// that swallows everything, or a process that was stopped: neither side notices. What was
// sent meanwhile arrives after Resume, whether or not its caller has given up.
func (c *Client) Stall() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if isClosed(c.link.flows) {
		c.link.flows = make(chan struct{})
	}
}

// Resume ends Stall.
func (c *Client) Resume() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if !isClosed(c.link.flows) {
		close(c.link.flows)
	}
}

// Break breaks the connection: streams and calls under way end with ErrUnavailable.
// The next ones get through.
func (c *Client) Break() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	close(c.link.broken)
	c.link.broken = make(chan struct{})
}

// Cut breaks the connection, and refuses new ones until Mend.
func (c *Client) Cut() {
	c.link.mu.Lock()
	c.link.cut = true
	c.link.mu.Unlock()
	c.Break()
}

// Mend ends Cut.
func (c *Client) Mend() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.cut = false
}

// SetLeader takes the cluster's leader away, or gives it a new one. Without one,
// requests and streams that require a leader are refused, others wait; leases do not
// end.
func (s *Server) SetLeader(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	switch {
	case is && !isClosed(s.leader):
		close(s.leader)
		// A new leader gives all leases their whole time.
		s.stuck = false
		for _, l := range s.leases {
			l.expires = s.now().Add(time.Duration(l.ttl) * time.Second)
		}
		s.setAlarm()
	case !is && isClosed(s.leader):
		s.leader = make(chan struct{})
		s.stuck = true
		for _, t := range append([]*serverStream(nil), s.streams...) {
			if t.require {
				t.fail(errNoLeader)
			}
		}
	}
}

// Jump sets the server's clock forward, or back: leases end so much earlier, or
// later, than their TTL says.
func (s *Server) Jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.skew += d
	s.expire()
	s.setAlarm()
}

// Expire ends a lease now, as the leader does when its time is over. It returns
// whether there was one.
func (s *Server) Expire(id clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[int64(id)]
	if l != nil {
		s.end(l)
		s.setAlarm()
	}
	return l != nil
}

// Compact forgets all history but the present. It returns the revision up to which.
func (s *Server) Compact() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if s.store.compacted < s.store.revision {
		s.store.compact(s.store.revision)
	}
	return s.store.compacted
}

// Keys returns the keys that begin with a prefix, sorted, without any request.
func (s *Server) Keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.store.prefixed(prefix)
}

// Leases returns the leases that live, the one that ends first first.
func (s *Server) Leases() (ids []clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, l := range s.listLeases().Leases {
		ids = append(ids, clientv3.LeaseID(l.ID))
	}
	return ids
}

// Revision returns the revision of the last change.
func (s *Server) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.store.revision
}

// Backup returns what brings the server back to its present state, as a restored
// backup does: history is taken back, leases have their whole time again, and all
// streams break.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	saved, ids := s.store.clone(), map[int64]int64{}
	for id, l := range s.leases {
		ids[id] = l.ttl
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.store, s.leases = saved.clone(), map[int64]*lease{}
		for id, ttl := range ids {
			s.leases[id] = &lease{id: id, ttl: ttl, keys: map[string]bool{}, expires: s.now().Add(time.Duration(ttl) * time.Second)}
		}
		for _, kv := range s.store.at(span{"\x00", open}, s.store.revision) {
			if l := s.leases[kv.Lease]; l != nil {
				l.keys[string(kv.Key)] = true
			}
		}
		s.setAlarm()
		for _, t := range append([]*serverStream(nil), s.streams...) {
			t.fail(errUnavailable)
		}
	}
}
