package members

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// conn is a connection of the session to one member.
type conn struct {
	endpoint string
	cc       *grpc.ClientConn
	kv       etcdserverpb.KVClient
	lease    etcdserverpb.LeaseClient
	watch    etcdserverpb.WatchClient
	asking   atomic.Bool // Status is under way
}

// dial opens a connection to a member, with the settings and credentials of the caller's client.
func (s *calls) dial(ctx context.Context, endpoint string) (*conn, error) {
	cc, err := dialing(ctx, s.dials, endpoint, func() (*grpc.ClientConn, error) { return s.client.Dial(endpoint) },
		func(cc *grpc.ClientConn) { _ = cc.Close() })
	if err != nil {
		return nil, err
	}
	return &conn{endpoint: endpoint, cc: cc, kv: etcdserverpb.NewKVClient(cc), lease: etcdserverpb.NewLeaseClient(cc), watch: etcdserverpb.NewWatchClient(cc)}, nil
}

// lost reports whether an error says that a member was not reached, rather than what it has answered.
func lost(err error) bool {
	var answered rpctypes.EtcdError
	if err == nil || errors.As(rpctypes.Error(err), &answered) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// addresses are where the members have answered. A stream that has not answered is at none of them, and so may be at any.
type addresses map[string]string

// reply is how a probe has ended.
type reply struct {
	conn     *conn // nil if it could not be dialed
	endpoint string
	at       time.Time
	address  string
	err      error
}

// probe asks a member whether it answers, by its connection or a new one. The health service needs no user, no
// leader and no disk. Status, which has the term, waits while the member's database syncs: so it decides
// nothing else.
func (a *avoidance) probe(endpoint string, on *conn) {
	r := reply{conn: on, endpoint: endpoint}
	if on == nil {
		r.conn, r.err = a.dial(a.ctx, endpoint)
	}
	if r.conn == nil {
		a.report(r)
		return
	}
	var from peer.Peer
	_, r.err = grpc_health_v1.NewHealthClient(r.conn.cc).Check(a.ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&from))
	r.at = time.Now()
	if from.Addr != nil {
		r.address = from.Addr.String()
	}
	a.report(r)
	asking := &r.conn.asking
	if a.users { // each call without a token logs in, which costs etcd as much as a hundred requests
		asking = &a.asking
	}
	if lost(r.err) || a.loggingIn() || !asking.CompareAndSwap(false, true) {
		return
	}
	defer asking.Store(false)
	st, err := etcdserverpb.NewMaintenanceClient(r.conn.cc).Status(a.ctx, &etcdserverpb.StatusRequest{})
	if err == nil && st.Leader != 0 { // the term of a leader, not of a candidate
		a.saw(st.GetHeader())
	}
}

// report brings a reply to the loop.
func (a *avoidance) report(r reply) {
	select {
	case a.replies <- r:
	case <-a.ctx.Done():
		if r.conn != nil {
			_ = r.conn.cc.Close()
		}
	}
}

// avoidance is the loop around a judge.
type avoidance struct {
	*calls
	ctx     context.Context // ends with the loop
	judge   *judge
	at      addresses
	conns   map[string]*conn
	replies chan reply
	leaves  bool        // nothing new goes by own connections
	asking  atomic.Bool // Status is under way, by a client that logs in
}

// avoid probes the members and has calls avoid those that hang, until all is calm again.
func (s *calls) avoid() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	quiet := rand.N(time.Second) // a fleet does not return all at once
	a := &avoidance{calls: s, ctx: ctx, judge: newJudge(time.Now(), quiet), at: addresses{}, conns: map[string]*conn{}, replies: make(chan reply)}
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case r := <-a.replies:
			a.take(r)
		case <-s.wake:
		case <-timer.C:
		case <-s.ctx.Done():
			a.drop()
			return
		}
		if now := time.Now(); now.Sub(due) > tardy {
			a.judge.pause(now)
		}
		due = a.step(time.Now())
		if a.leaves && a.left() {
			return
		}
		timer.Reset(time.Until(due))
	}
}

// take takes over how a probe has ended.
func (a *avoidance) take(r reply) {
	if r.conn != nil {
		a.conns[r.endpoint] = r.conn
	}
	if lost(r.err) || r.conn == nil {
		a.judge.failed(r.endpoint, time.Now())
		a.forget(r.endpoint)
		return
	}
	if r.address != "" {
		a.at[r.address] = r.endpoint
	}
	if a.judge.answered(r.endpoint, r.at) {
		a.log.Info("a member of etcd answers again", zap.String("endpoint", r.endpoint))
	}
}

// step decides, and does what was decided. It returns when to do so again.
func (a *avoidance) step(now time.Time) time.Time {
	a.mu.Lock()
	late, failed := a.late > 0 && !a.loggingIn(), a.failed
	a.failed = nil
	a.mu.Unlock()
	for _, c := range failed {
		if a.conns[c.endpoint] == c {
			a.judge.failed(c.endpoint, now)
			a.forget(c.endpoint)
		}
	}
	o := a.judge.decide(now, late, a.client.Endpoints())
	for _, endpoint := range o.hang {
		a.log.Warn("a member of etcd does not answer while others do: its calls go to the others", zap.String("endpoint", endpoint))
	}
	for _, endpoint := range o.forget {
		a.forget(endpoint)
	}
	a.leaves = o.leave
	a.direct()
	a.cut(a.judge, a.at)
	for _, endpoint := range o.probe {
		on := a.conns[endpoint]
		a.wg.Go(func() { a.probe(endpoint, on) })
	}
	if o.decides.IsZero() {
		return now.Add(later)
	}
	return o.decides
}

// direct has new calls go to the members that answer, or by the caller's client.
func (a *avoidance) direct() {
	var route []*conn
	if a.judge.hangs("") {
		for _, endpoint := range a.judge.goodOnes() {
			route = append(route, a.conns[endpoint])
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.route = route
}

// left ends the loop, if no call goes by its connections any more and none is late. Streams on them end.
func (a *avoidance) left() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	busy := a.late > 0
	for c := range a.under {
		switch {
		case c.on == nil:
		case c.opened:
			c.cancel(&UnansweredError{"all members of etcd answer again: the stream is opened by the client of the session"})
		default:
			busy = true
		}
	}
	if busy {
		return false
	}
	a.trouble, a.failed = false, nil
	a.drop()
	return true
}

// forget closes the connection to a member. It does not wait for that, as gRPC does for up to 5 s if the member reads
// nothing: the caller may hold the lock that each call needs.
func (a *avoidance) forget(endpoint string) {
	if c := a.conns[endpoint]; c != nil {
		delete(a.conns, endpoint)
		a.wg.Go(func() { _ = c.cc.Close() })
	}
}

// drop closes all connections.
func (a *avoidance) drop() {
	for endpoint := range a.conns {
		a.forget(endpoint)
	}
}

// close ends the loop and its probes.
func (s *calls) close() {
	s.mu.Lock()
	s.closed, s.route = true, nil
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
}
