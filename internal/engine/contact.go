package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/members"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

const (
	// silence is how long a request has to be unanswered before etcd counts as
	// unavailable. A healthy cluster answers in milliseconds.
	silence = 500 * time.Millisecond
	// probeLead is how long before the known end of a wait etcd is asked whether it
	// still answers, if it has not answered anything for as long.
	probeLead = time.Second
)

// contact records whether etcd answers a session: what was asked, the last answer and the
// failures since. It is safe for concurrent use.
type contact struct {
	probing atomic.Bool // a probe is under way

	mu             sync.Mutex
	last           time.Time // of the last answer
	oldest, newest *asked    // of the requests under way that count, or nil
	silent         bool      // since the last answer a request has failed, or was given up after silence
	since          time.Time // if so, when the silence began that this request has met
	err            error     // how the last one failed
}

// asked is a request that was sent, or nil where a stream has ended by itself, or a watch has brought something.
type asked struct {
	at           time.Time
	counts       bool   // it is under way, and has not been left unanswered by its member alone
	older, newer *asked // the next ones that count, or nil
}

// ask records in a that a request is sent, for answer.
func (c *contact) ask(a *asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*a = asked{at: time.Now(), counts: true, older: c.newest}
	if c.newest == nil {
		c.oldest = a
	} else {
		c.newest.newer = a
	}
	c.newest = a
}

// unsent records why a request was not sent: it has waited in vain for the login of another, which is silence of
// etcd's, or it is known that etcd refuses the login, which is no answer of now.
func (c *contact) unsent(a *asked, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, errAwaited) && time.Since(a.at) >= silence {
		c.fails(errAwaited)
	}
	c.ends(a)
}

// answer records what became of a request. A refusal is an answer.
func (c *contact) answer(a *asked, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case members.Unanswered(err):
		// Others answer: by one member, the call says nothing of etcd.
	case err == nil || !commit.Transient(err):
		c.answered(time.Now())
	case cutShort(err):
		// By its caller, perhaps at once, which says nothing of etcd.
		if a != nil && a.counts && time.Since(later(a.at, c.last)) >= silence {
			c.fails(c.err)
		}
	default:
		c.fails(err)
	}
	c.ends(a)
}

// answered records that etcd answers at a time. A request that has had no answer for silence by then is one that its
// member alone does not answer, and does not count any more. One that was sent later does: what has arrived may have
// been on its way before etcd fell silent.
func (c *contact) answered(now time.Time) {
	c.last, c.silent, c.since, c.err = now, false, time.Time{}, nil
	for {
		if c.oldest == nil || now.Sub(c.oldest.at) < silence {
			return
		}
		c.ends(c.oldest)
	}
}

// fails records that a request has failed, or was given up after silence. It has not ended yet.
func (c *contact) fails(err error) {
	if !c.silent {
		c.silent, c.since = true, c.begun()
	}
	c.err = err
}

// ends records that a request is not under way, or does not count.
func (c *contact) ends(a *asked) {
	if a == nil || !a.counts {
		return
	}
	if a.older == nil {
		c.oldest = a.newer
	} else {
		a.older.newer = a.newer
	}
	if a.newer == nil {
		c.newest = a.older
	} else {
		a.newer.older = a.older
	}
	a.counts, a.older, a.newer = false, nil, nil
}

// begun returns when the silence began in which etcd is now: when the oldest request without an answer was sent, or
// the last answer if that came after it; now, if none is under way.
func (c *contact) begun() time.Time {
	if c.oldest != nil {
		return later(c.oldest.at, c.last)
	}
	return time.Now()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// cutShort reports whether an error says no more than that a call has ended before its
// answer came.
func cutShort(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || code == codes.Canceled || code == codes.DeadlineExceeded
}

// trouble returns what is known of an etcd that does not answer, and whether that is so.
func (c *contact) trouble() (Outage, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Outage{Since: c.since, LastAnswer: c.last, Err: c.err}
	if !c.silent && c.oldest != nil {
		o.Since = c.begun()
	}
	return o, c.silent || !o.Since.IsZero() && time.Since(o.Since) >= silence
}

// fresh reports whether it is known, without a probe, whether etcd answers.
func (c *contact) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.silent && time.Since(c.last) < probeLead
}

// Outage is what is known of an etcd that does not answer.
type Outage struct {
	Since      time.Time // when the first request was sent that has no answer, or LastAnswer if that is later
	LastAnswer time.Time
	Err        error // the last error of etcd's or of the connection, if there was one
}

// Unavailable returns why etcd cannot be asked. ok is false if it answers.
func (s *Session) Unavailable() (o Outage, ok bool) {
	o, ok = s.contact.trouble()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil && s.trouble != nil { // etcd refuses a lease
		o.Err, ok = s.trouble, true
	}
	if ok && o.Since.IsZero() {
		o.Since = o.LastAnswer
	}
	return o, ok
}

// Unanswered is Unavailable for a call that was sent at a time and has no answer. It also
// counts as an outage if that was so long ago that etcd should have answered.
func (s *Session) Unanswered(sent time.Time) (Outage, bool) {
	o, ok := s.Unavailable()
	if !ok {
		o.Since, ok = sent, time.Since(sent) >= silence
	}
	return o, ok
}

// ProbeBefore has etcd asked, shortly before the known end of a wait, whether it answers,
// unless the wait is shorter or stop is called before.
func (e *Epoch) ProbeBefore(end time.Time) (stop func() bool) {
	left := time.Until(end) - probeLead
	if left <= 0 {
		return func() bool { return false }
	}
	return time.AfterFunc(left, e.probe).Stop
}

// probe asks etcd, once for all waits that end soon, whether it answers: contact records
// that. It returns at once.
func (e *Epoch) probe() {
	s := e.sess
	if s.contact.fresh() || !s.contact.probing.CompareAndSwap(false, true) {
		return
	}
	s.Background(func() { // or after Close, when no wait is left
		defer s.contact.probing.Store(false)
		ctx, cancel := commit.Call(s.ctx)
		defer cancel()
		_, _ = s.kv.Get(ctx, e.keys.Alive())
	})
}

// recording is what records the requests of a session and their answers. One request at a time logs in while that is
// refused.
type recording struct {
	contact *contact
	login   *login
}

// send sends a request, of which a is the record. It may have to wait for a login.
func send[R any](ctx context.Context, r recording, a *asked, request func() (R, error)) (resp R, err error) {
	r.contact.ask(a)
	left, err := r.login.enter(ctx)
	if err != nil {
		r.contact.unsent(a, err)
		return resp, err
	}
	resp, err = request()
	r.contact.answer(a, err)
	left(err)
	return resp, err
}

// recorded is a caller's client whose reads and Txns are recorded.
type recorded struct {
	clientv3.KV
	recording
	meets  func() met
	rewind func(of *mirror.History)
}

// errFormer is the error of an answer that is of a history of etcd's which was taken back while it was under way. A read is
// repeated, and what became of a write is asked for.
var errFormer = errors.New("the answer is of a history of etcd's that was taken back meanwhile")

// former reports whether an answer to what was sent after before is of a history that is over: what it shows would count in the
// present one.
func (r *recorded) former(before met, h *etcdserverpb.ResponseHeader) bool {
	return h.GetRevision() >= before.seen && r.meets().of != before.of
}

func (r *recorded) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	before := r.meets()
	resp, err := send(ctx, r.recording, &asked{}, func() (*clientv3.GetResponse, error) { return r.KV.Get(ctx, key, opts...) })
	if err == nil && r.former(before, resp.Header) {
		return nil, errFormer
	}
	return resp, err
}

func (r *recorded) Txn(ctx context.Context) clientv3.Txn {
	return &txn{Txn: r.KV.Txn(ctx), ctx: ctx, recorded: r}
}

type txn struct {
	clientv3.Txn
	*recorded
	ctx    context.Context // of its one call
	asked  asked
	writes bool // whether it may write: etcd puts it in order after all that was committed before
}

func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cmps...); return t }
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t.with(ops) }
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t.with(ops) }

func (t *txn) with(ops []clientv3.Op) clientv3.Txn {
	t.writes = t.writes || slices.ContainsFunc(ops, writes)
	return t
}

// writes reports whether an operation may write, also one of several that were gathered in a Txn.
func writes(op clientv3.Op) bool {
	if !op.IsTxn() {
		return op.IsPut() || op.IsDelete()
	}
	_, then, otherwise := op.Txn()
	return slices.ContainsFunc(then, writes) || slices.ContainsFunc(otherwise, writes)
}

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	before := t.meets()
	resp, err := send(t.ctx, t.recording, &t.asked, t.Txn.Commit)
	if err == nil && t.former(before, resp.Header) {
		return nil, errFormer
	}
	if err == nil && t.writes && resp.Header.GetRevision() > 0 && resp.Header.GetRevision() < before.seen {
		t.rewind(before.of)
	}
	return resp, err
}

// leases is the API of leases, whose grants and renewals are recorded.
type leases struct {
	lease.API
	recording
}

func (l leases) Grant(ctx context.Context, id, seconds int64) (int64, error) {
	return send(ctx, l.recording, &asked{}, func() (int64, error) { return l.API.Grant(ctx, id, seconds) })
}

func (l leases) Revoke(ctx context.Context, id int64) error {
	left, err := l.login.enter(ctx)
	if err == nil {
		err = l.API.Revoke(ctx, id)
		left(err)
	}
	return err
}

func (l leases) Renewals(ctx context.Context) (lease.Stream, error) {
	opened, err := l.login.open()
	if err != nil {
		return nil, err
	}
	s, err := l.API.Renewals(ctx)
	opened(err)
	if err != nil {
		l.contact.answer(nil, err)
		return nil, err
	}
	return &renewals{Stream: s, recording: l.recording}, nil
}

// renewals is a stream on which one renewal at a time is under way.
type renewals struct {
	lease.Stream
	recording

	mu    sync.Mutex
	asked *asked // the renewal under way, or nil
}

func (r *renewals) Send(id int64) error {
	r.mu.Lock()
	r.asked = &asked{}
	r.contact.ask(r.asked)
	r.mu.Unlock()
	err := r.Stream.Send(id)
	if err != nil { // Recv may have returned already, and then is not called again
		r.answered(err)
	}
	return err
}

func (r *renewals) Recv() (id, seconds int64, err error) {
	id, seconds, err = r.Stream.Recv()
	r.answered(err)
	return id, seconds, err
}

func (r *renewals) answered(err error) {
	r.mu.Lock()
	a := r.asked
	r.asked = nil
	r.mu.Unlock()
	r.contact.answer(a, err)
	if commit.NeedsLogin(err) {
		r.login.left(err, false)
	}
}
