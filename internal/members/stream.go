package members

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// stream is an open stream, with the requests on it that have no answer.
type stream struct {
	calls *calls
	call  *call
	ctx   context.Context

	came  sync.Once // the first message
	mu    sync.Mutex
	asked int
	timer *time.Timer // runs while asked > 0
}

// hold records that a stream is open, until its Recv fails or ctx ends.
func (s *calls) hold(ctx context.Context, c *call) *stream {
	s.opened(c)
	h := &stream{calls: s, call: c, ctx: ctx}
	h.timer = time.AfterFunc(lateAfter, h.isLate)
	h.timer.Stop()
	context.AfterFunc(ctx, func() { _ = h.ends(context.Cause(ctx)) })
	return h
}

// isLate is called when the timer has fired: an answer may have come since.
func (h *stream) isLate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked > 0 {
		h.calls.isLate(h.call, h.timer)
	}
}

// received records that a message has come. gRPC knows the member of a stream only then for certain: before that, a stream that
// is sent again waits for a connection and keeps what asks it for its member waiting, and so all calls that need the lock.
func (h *stream) received(from grpc.ClientStream) {
	h.came.Do(func() { h.calls.at(h.call, from) })
}

func (h *stream) asks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked++; h.asked == 1 {
		h.timer.Reset(lateAfter)
	}
}

func (h *stream) answers() {
	h.mu.Lock()
	h.asked = max(0, h.asked-1)
	if h.asked == 0 {
		h.timer.Stop()
	} else {
		h.timer.Reset(lateAfter)
	}
	h.mu.Unlock()
	h.calls.answered(h.call)
}

func (h *stream) ends(err error) error {
	h.mu.Lock()
	h.timer.Stop()
	h.mu.Unlock()
	return h.calls.end(h.ctx, h.call, err)
}

// renewals is a stream on which each request has one answer.
type renewals struct {
	etcdserverpb.Lease_LeaseKeepAliveClient
	*stream
}

func (r renewals) Send(m *etcdserverpb.LeaseKeepAliveRequest) error {
	r.asks()
	return r.Lease_LeaseKeepAliveClient.Send(m)
}

func (r renewals) Recv() (*etcdserverpb.LeaseKeepAliveResponse, error) {
	m, err := r.Lease_LeaseKeepAliveClient.Recv()
	if err != nil {
		return nil, r.ends(err)
	}
	r.received(r.Lease_LeaseKeepAliveClient)
	r.calls.saw(m.GetHeader())
	r.answers()
	return m, nil
}
