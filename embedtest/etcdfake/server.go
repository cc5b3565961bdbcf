package etcdfake

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TB is the part of testing.TB that this package uses. Values of other test frameworks,
// such as Ginkgo and rapid, can implement it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
}

// Server is one etcd, as its clients see it: a cluster of which no member is ever
// behind. Its methods may be called concurrently.
type Server struct {
	tb          TB
	id          uint64        // of the cluster and of its member
	real        *realEtcd     // instead of what follows; nil for a fake
	expireEvery time.Duration // 0: a lease ends on the nanosecond
	begun       time.Time     // the first look for expired leases

	mu      sync.Mutex
	store   *store
	leases  map[int64]*lease
	lastID  int64
	next    time.Time   // no lease ends before it; zero without a lease
	alarm   *time.Timer // then
	skew    time.Duration
	stuck   bool          // leases do not end
	again   chan struct{} // closed, and made anew, when renewals of expired leases look again
	leader  chan struct{} // closed while there is one
	streams []*serverStream
	clients map[*Client]struct{}
	own     *Client // that of Client

	travels atomic.Int64 // goroutines of messages on their way
	away    atomic.Bool  // a client was closed that could open no stream

	done  chan struct{} // closed by Close
	close sync.Once
	wg    sync.WaitGroup
}

// Option is a setting of a Server.
type Option func(*Server)

// ExpireEvery is the time between two looks of the server for leases that have expired;
// the first look is when the server is made. A real etcd looks every 500 ms. The default
// is none: a lease ends on the nanosecond. Between its expiry and the look a lease lives, and
// its renewal waits.
func ExpireEvery(d time.Duration) Option { return func(s *Server) { s.expireEvery = d } }

// lastServer is the id of the last Server of the process.
var lastServer atomic.Uint64

// New returns an empty etcd, a cluster of its own: no two of a process have the same
// ClusterId. tb.Cleanup closes it and its clients. In a bubble of
// testing/synctest, tb must be the *testing.T of the bubble, and the server and its
// clients must stay in it; [Test] does that. There, New fails tb if etcd's client is of a
// line other than 3.6 and 3.7: with another one the time of the bubble may never pass.
func New(tb TB, opts ...Option) *Server {
	tb.Helper()
	checkBubble(tb, version.Version)
	s := &Server{
		tb: tb, id: lastServer.Add(1), begun: time.Now(), store: newStore(), leases: map[int64]*lease{},
		leader: make(chan struct{}), again: make(chan struct{}),
		clients: map[*Client]struct{}{}, done: make(chan struct{}),
	}
	close(s.leader)
	for _, set := range opts {
		set(s)
	}
	if s.real != nil {
		s.real.tb, s.real.client = tb, s.Client
	}
	tb.Cleanup(s.Close)
	return s
}

// Close closes the clients and ends the server, with all that is still on its way to it.
// It returns when no goroutine of the server is left. Further calls do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	clients := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	for _, c := range clients {
		_ = c.Close()
	}
	s.close.Do(func() {
		close(s.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.alarm != nil {
			s.alarm.Stop()
		}
	})
	s.wg.Wait()
	if s.away.Load() {
		time.Sleep(streamEnds)
	}
}

// streamEnds is more than how long etcd's client takes to end a watch whose stream cannot be opened again: 250 ms, in a
// goroutine for which its Close does not wait. In a bubble that must not outlive the test.
const streamEnds = 300 * time.Millisecond

// leaves records that a client is closed while its connection is broken or stalled: watches are ended by goroutines then.
func (s *Server) leaves(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reach != open {
		s.away.Store(true)
	}
}

// Client returns the server's own client, the same for each call, into which no faults
// are injected. It is for what the test itself reads and writes. The server closes it.
func (s *Server) Client() *clientv3.Client {
	s.tb.Helper()
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	if own != nil {
		return own.Client
	}
	c := s.NewClient()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		s.own = c // of two first calls, one client is not used
	}
	return s.own.Client
}

func (s *Server) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// start runs fn in a goroutine that Close waits for, unless the server is closed.
func (s *Server) start(fn func()) (started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return false
	}
	s.wg.Go(fn)
	return true
}

// background is start for a message on its way.
func (s *Server) background(fn func()) {
	s.travels.Add(1)
	arrived := func() { s.travels.Add(-1) }
	if !s.start(func() { defer arrived(); fn() }) {
		arrived()
	}
}

// InFlight returns how many requests are held up on their way to the server. Each has a
// goroutine, which a process with a real network does not have.
func (s *Server) InFlight() int64 { return s.travels.Load() }

// header is that of an answer.
func (s *Server) header() *pb.ResponseHeader { return s.headerAt(s.store.revision) }

func (s *Server) headerAt(revision int64) *pb.ResponseHeader {
	h := &pb.ResponseHeader{Revision: revision}
	s.complete(h)
	return h
}

// complete turns the header of an inner answer into that of an outer one.
func (s *Server) complete(h *pb.ResponseHeader) {
	h.ClusterId, h.MemberId, h.RaftTerm = 0xfa4e<<32|s.id, s.id, 2
}

// answer applies a unary request of so many bytes.
func (s *Server) answer(method string, req any, size int) (any, error) {
	if err := valid(req); err != nil {
		return nil, err
	}
	if size > maxProposed && proposed(req) {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return nil, errUnavailable
	}
	s.expire()
	switch r := req.(type) {
	case *pb.CompactionRequest:
		return s.compaction(r)
	case *pb.LeaseGrantRequest:
		return s.grant(r)
	case *pb.LeaseRevokeRequest:
		return s.revoke(r)
	case *pb.LeaseTimeToLiveRequest:
		return s.timeToLive(r), nil
	case *pb.LeaseLeasesRequest:
		return s.listLeases(), nil
	}
	resp, err := s.ofKeys(req)
	if resp == nil && err == nil {
		return nil, notSupported(method)
	}
	return resp, err
}

// notSupported is the error of an RPC that a Server does not have.
func notSupported(method string) error {
	return status.Errorf(codes.Unimplemented, "etcdfake: %s is not supported: test it on a real etcd (package embedtest)", method)
}

// ofKeys applies a request of the KV service. It returns nil and no error for any other.
func (s *Server) ofKeys(req any) (any, error) {
	w := &write{store: s.store}
	switch r := req.(type) {
	case *pb.RangeRequest:
		resp, err := w.rangeOf(r)
		if err != nil {
			return nil, err
		}
		s.complete(resp.Header)
		return resp, nil
	case *pb.PutRequest:
		if err := w.checkPut(r, s.leases); err != nil {
			return nil, err
		}
		resp := w.putOf(r)
		s.commit(w)
		s.complete(resp.Header)
		return resp, nil
	case *pb.DeleteRangeRequest:
		resp := w.deleteOf(r)
		s.commit(w)
		s.complete(resp.Header)
		return resp, nil
	case *pb.TxnRequest:
		p := w.plan(r)
		if err := w.check(p, s.leases); err != nil {
			return nil, err
		}
		resp, err := w.run(p)
		if err != nil {
			return nil, err
		}
		s.commit(w)
		resp.Header = s.header()
		return resp, nil
	}
	return nil, nil
}

func (s *Server) compaction(r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	switch {
	case r.Revision <= s.store.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > s.store.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	}
	s.store.compact(r.Revision)
	return &pb.CompactionResponse{Header: s.header()}, nil
}

// commit ends a transaction and notifies the watchers.
func (s *Server) commit(w *write) {
	changes := w.end()
	if len(changes) == 0 {
		return
	}
	s.attach(changes)
	for _, stream := range s.streams {
		stream.notify(changes)
	}
}

// waitLeader waits until the cluster has a leader. It returns what etcd says to
// callers that do not want to wait, or after its own limit for a request.
func (s *Server) waitLeader(require bool) error {
	limit := time.NewTimer(7 * time.Second)
	defer limit.Stop()
	for {
		s.mu.Lock()
		leader := s.leader
		s.mu.Unlock()
		select {
		case <-leader:
			return nil
		default:
		}
		if require {
			return rpctypes.ErrGRPCNoLeader
		}
		select {
		case <-leader:
		case <-limit.C:
			return rpctypes.ErrGRPCTimeout
		case <-s.done:
			return errUnavailable
		}
	}
}

// errUnavailable is what gRPC says when a connection breaks.
var errUnavailable = status.Error(codes.Unavailable, "etcdfake: the connection is broken")

// ctxErr is what gRPC says when a call's context ends.
func ctxErr(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }
