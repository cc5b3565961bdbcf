package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// lateAfter is when a call is late. A healthy cluster answers in milliseconds.
	lateAfter = 250 * time.Millisecond
	// astrayAfter is when a call on an own connection may be at another member as well: etcd's client
	// fetches a new token round robin. For a stream, which always needs one, that is lateAfter; each opening
	// that ends so doubles it, up to astrayMost, since a login takes a busy etcd long.
	astrayAfter, astrayMost = time.Second, 4 * time.Second
)

// calls are the calls and streams of a session that are under way.
type calls struct {
	client *clientv3.Client
	dials  *dials
	log    *zap.Logger
	users  bool // the client logs in, round robin
	// loggingIn reports whether the client logs in now, or may not.
	loggingIn func() bool
	ctx       context.Context
	stop      context.CancelFunc
	wg        sync.WaitGroup

	term    atomic.Uint64 // greatest Raft term of an answer
	silence *silence

	afterFunc func(time.Duration, func()) *time.Timer // time.AfterFunc, but in a test

	mu      sync.Mutex
	under   map[*call]struct{}
	late    int
	route   []*conn // what takes new calls while a member is left out, or nil
	next    int
	opening time.Duration // when the opening of a stream is astray
	failed  []*conn       // on which calls have failed since the loop last looked
	trouble bool          // the loop runs
	closed  bool
	wake    chan struct{}
}

// call is one call, or a stream from its opening until its end.
type call struct {
	cancel context.CancelCauseFunc
	on     *conn  // by which connection, or nil by the caller's client
	term   uint64 // known when it was sent
	timer  *time.Timer
	opens  bool // it is a stream

	// All are guarded by calls.mu.
	late   bool
	astray bool   // it may be at any member
	opened bool   // it is a stream, and open
	where  string // the address at which a stream has answered
}

func newCalls(client *clientv3.Client, log *zap.Logger) *calls {
	s := &calls{client: client, dials: &dials{}, log: log, users: client.Username != "", loggingIn: func() bool { return false }, silence: newSilence(), afterFunc: time.AfterFunc, opening: lateAfter, under: map[*call]struct{}{}, wake: make(chan struct{}, 1)}
	s.ctx, s.stop = context.WithCancel(client.Ctx())
	return s
}

// UnansweredError ends a call or a stream whose answer is not awaited any more. Whether it has taken or will
// take effect is not known.
type UnansweredError struct{ why string }

// Error says why no answer is expected.
func (e *UnansweredError) Error() string { return e.why }

// GRPCStatus makes it a lost connection for etcd's client.
func (e *UnansweredError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.why) }

// Unanswered reports whether a call ended because its member does not answer while others do. It says
// nothing of etcd as a whole.
func Unanswered(err error) bool {
	_, ok := errors.AsType[*UnansweredError](err)
	return ok
}

// begin records a call that is about to be sent, and says by which connection. Its ctx ends with end.
func (s *calls) begin(ctx context.Context, opens bool) (context.Context, *call) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel: cancel, term: s.term.Load(), opens: opens}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Under mu: if this goroutine were stopped here, the timer would fire for a call that is not recorded, and never again.
	c.timer = s.afterFunc(lateAfter, func() { s.isLate(c, nil) })
	if len(s.route) > 0 {
		s.next++
		c.on = s.route[s.next%len(s.route)]
	}
	s.under[c] = struct{}{}
	return ctx, c
}

// isLate records that a call is late. by is the timer that has fired, of a stream that is open; nil is that of the call, which
// counts until then.
func (s *calls) isLate(c *call, by *time.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by == nil {
		by = c.timer
	}
	if _, ok := s.under[c]; !ok || s.closed || by == c.timer && c.opened {
		return
	}
	switch {
	case s.loggingIn():
		by.Reset(lateAfter)
		return
	case !c.late:
		c.late = true
		s.late++
		after := astrayAfter
		if c.opens {
			after = s.opening
		}
		if s.users && c.on != nil && !c.opened {
			c.timer.Reset(after - lateAfter)
		}
	default:
		c.astray = true
	}
	if !s.trouble {
		s.trouble = true
		s.wg.Go(s.avoid)
	}
	s.stir()
}

// stir has the loop look again.
func (s *calls) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// answered records that a stream has answered what was late.
func (s *calls) answered(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inTime(c)
}

// inTime is answered while s.mu is held.
func (s *calls) inTime(c *call) {
	if c.late {
		c.late = false
		s.late--
		s.stir()
	}
}

// opened records that a stream is open.
func (s *calls) opened(c *call) {
	c.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inTime(c)
	c.opened, c.astray, s.opening = true, false, lateAfter
}

// at records the address at which a stream has answered.
func (s *calls) at(c *call, stream grpc.ClientStream) {
	p, ok := peer.FromContext(stream.Context())
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.where = p.Addr.String()
}

// end records the end of a call, with its error or nil, and returns what its caller gets. It may be called
// more than once.
func (s *calls) end(ctx context.Context, c *call, err error) error {
	c.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.under[c]; ok {
		delete(s.under, c)
		if c.late {
			s.late--
		}
		if s.trouble && (c.late || c.on != nil) {
			s.stir()
		}
	}
	cause := context.Cause(ctx)
	c.cancel(nil)
	switch {
	case err == nil:
		return nil
	case Unanswered(cause):
		if c.astray && c.opens {
			s.opening = min(2*s.opening, astrayMost)
		}
		return cause
	case c.on != nil && ctx.Err() == nil && lost(err):
		s.failed = append(s.failed, c.on)
		s.stir()
		return &UnansweredError{fmt.Sprintf("the connection to etcd's member %s is lost: %v", c.on.endpoint, err)}
	}
	return err
}

// raise stores a greater value, and reports whether it is one.
func raise(known *atomic.Uint64, to uint64) bool {
	for {
		is := known.Load()
		if to <= is {
			return false
		}
		if known.CompareAndSwap(is, to) {
			return true
		}
	}
}

// saw takes over the revision and the Raft term of an answer.
func (s *calls) saw(h *etcdserverpb.ResponseHeader) {
	raise(&s.silence.revision, uint64(h.GetRevision()))
	if !raise(&s.term, h.GetRaftTerm()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble {
		s.stir()
	}
}

// cut ends the calls that are not answered any more, as far as j and the term show.
func (s *calls) cut(j *judge, at addresses) {
	term := s.term.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.under {
		if why := c.ends(j, at, term); why != "" {
			c.cancel(&UnansweredError{why})
		}
	}
}

// ends says why a call is not awaited any more, or nothing. s.mu is held.
func (c *call) ends(j *judge, at addresses, term uint64) (why string) {
	member := "" // any
	if c.on != nil && !c.astray {
		member = c.on.endpoint
	}
	switch {
	case c.opened && c.on == nil:
		if (c.where != "" || c.late) && j.hangs(at[c.where]) {
			return "the member of etcd does not answer, and others do: the stream is opened at another"
		}
	case c.on != nil && j.hangs(c.on.endpoint):
		return fmt.Sprintf("etcd's member %s does not answer, and others do", c.on.endpoint)
	case c.late && member == "" && j.hangs(""):
		return "a member of etcd does not answer while others do, and the call may have been sent to it"
	case c.late && !c.opened && c.term > 0 && c.term < term:
		return "etcd has a new leader since the call was sent, and has not answered it"
	}
	return ""
}
