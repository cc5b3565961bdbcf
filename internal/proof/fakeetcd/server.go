package fakeetcd

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server is one etcd, as its clients see it: a cluster of which no member is ever
// behind. It is safe for concurrent use.
type Server struct {
	minTTL      int64
	expireEvery time.Duration // 0: a lease ends on the nanosecond
	begun       time.Time     // the first look for expired leases

	mu      sync.Mutex
	store   *store
	leases  map[int64]*lease
	lastID  int64
	alarm   *time.Timer // at the end of the lease that ends first
	skew    time.Duration
	stuck   bool          // leases do not end
	leader  chan struct{} // closed while there is one
	streams []*serverStream

	travels atomic.Int64 // goroutines of messages on their way

	done  chan struct{} // closed by Close
	close sync.Once
	wg    sync.WaitGroup
}

// Options configure a Server. nil means all defaults.
type Options struct {
	// MinTTL is the shortest TTL of a lease, in seconds: shorter ones are granted
	// as that. Defaults to 1.
	MinTTL int64

	// ExpireEvery is the time between two looks for leases that have expired, the first
	// of which is when the server is made. A real etcd looks every 500 ms. Defaults to
	// none: a lease ends on the nanosecond.
	ExpireEvery time.Duration
}

// New returns an empty etcd. Under testing/synctest it and its clients must be made,
// used and closed in one bubble. Close it after its clients.
func New(o *Options) *Server {
	s := &Server{minTTL: 1, store: newStore(), leases: map[int64]*lease{}, leader: make(chan struct{}), done: make(chan struct{})}
	close(s.leader)
	if o != nil && o.MinTTL > 0 {
		s.minTTL = o.MinTTL
	}
	if o != nil {
		s.expireEvery, s.begun = o.ExpireEvery, time.Now()
	}
	return s
}

// Close ends the server, with all that is still on its way to it, and waits until no
// goroutine of it is left.
func (s *Server) Close() {
	s.close.Do(func() {
		close(s.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.alarm != nil {
			s.alarm.Stop()
		}
	})
	s.wg.Wait()
}

func (s *Server) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// background runs fn in a goroutine that Close waits for.
func (s *Server) background(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped() {
		s.travels.Add(1)
		s.wg.Go(func() {
			defer s.travels.Add(-1)
			fn()
		})
	}
}

// OnTheWay returns how many messages are on their way. Each has a goroutine, which a process with a real
// network would not have.
func (s *Server) OnTheWay() int64 { return s.travels.Load() }

// header is that of an answer.
func (s *Server) header() *pb.ResponseHeader { return s.headerAt(s.store.revision) }

func (s *Server) headerAt(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 0xfa4e, MemberId: 1, RaftTerm: 2, Revision: revision}
}

// complete turns the header of an inner answer into that of an outer one.
func (s *Server) complete(h *pb.ResponseHeader) {
	h.ClusterId, h.MemberId, h.RaftTerm = 0xfa4e, 1, 2
}

// answer applies a unary request.
func (s *Server) answer(method string, req any) (any, error) {
	if err := valid(req); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return nil, errUnavailable
	}
	s.expire()
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
	case *pb.CompactionRequest:
		switch {
		case r.Revision <= s.store.compacted:
			return nil, rpctypes.ErrGRPCCompacted
		case r.Revision > s.store.revision:
			return nil, rpctypes.ErrGRPCFutureRev
		}
		s.store.compact(r.Revision)
		return &pb.CompactionResponse{Header: s.header()}, nil
	case *pb.LeaseGrantRequest:
		return s.grant(r)
	case *pb.LeaseRevokeRequest:
		return s.revoke(r)
	case *pb.LeaseTimeToLiveRequest:
		return s.timeToLive(r), nil
	case *pb.LeaseLeasesRequest:
		return s.listLeases(), nil
	}
	return nil, status.Errorf(codes.Unimplemented, "fakeetcd: %s is not supported", method)
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
var errUnavailable = status.Error(codes.Unavailable, "fakeetcd: the connection is broken")

// ctxErr is what gRPC says when a call's context ends.
func ctxErr(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// forget removes a stream.
func (s *Server) forget(stream *serverStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, func(x *serverStream) bool { return x == stream })
}
