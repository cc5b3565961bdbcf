package concurrency

import (
	"context"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// left is what other sessions have left for one request of this session.
type left struct {
	notice *record.Notice // why they ended it
	asked  *StepDownError // that it should step down
}

// mail brings what the watch has found to the request that it is for. It keeps nothing
// for requests that are none of this session's, or no longer, so it needs no bound: what
// it held for a live request could otherwise be pushed out by others. The epoch guards it.
type mail struct {
	claims   map[int64]*claim // whose requests stand, by token
	creating map[*claim]int64 // whose tokens are not known yet, with their numbers
	begun    int64            // the next number
	early    map[int64]*early // by token: for one of those, perhaps
}

// early is kept until all creations before number until have ended: the request of a
// later one has a greater token.
type early struct {
	left
	until int64
}

func newMail() mail {
	return mail{claims: map[int64]*claim{}, creating: map[*claim]int64{}, early: map[int64]*early{}}
}

// creates notes that a claim's request is about to be written.
func (m *mail) creates(c *claim) {
	m.creating[c] = m.begun
	m.begun++
}

// created notes what came of that: a token, or 0.
func (m *mail) created(c *claim, token int64) {
	delete(m.creating, c)
	if c.token = token; token != 0 {
		m.claims[token] = c
		if e := m.early[token]; e != nil {
			c.left = e.left
			delete(m.early, token)
		}
	}
	if len(m.early) == 0 {
		return
	}
	oldest := m.begun
	for _, number := range m.creating {
		oldest = min(oldest, number)
	}
	maps.DeleteFunc(m.early, func(_ int64, e *early) bool { return e.until <= oldest })
}

// forget is for a claim whose key is gone.
func (m *mail) forget(c *claim) {
	if m.claims[c.token] == c {
		delete(m.claims, c.token)
	}
}

// box returns where to put what is left for a request, or nil if it can be none of this
// session's.
func (m *mail) box(token int64) *left {
	if c := m.claims[token]; c != nil {
		return &c.left
	}
	if len(m.creating) == 0 {
		return nil
	}
	e := m.early[token]
	if e == nil {
		e = &early{until: m.begun}
		m.early[token] = e
	}
	return &e.left
}

// created notes the token of a claim, or 0 if its request was not created.
func (e *epoch) created(c *claim, token int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mail.created(c, token)
}

// notice takes a notice that one of this session's requests was ended by others, and
// removes it from etcd. For a request that is no permit (yet) it is kept with the
// request, for the caller, who will ask why.
func (e *epoch) notice(kv *mvccpb.KeyValue) {
	if token, ok := e.keys.ParseStepDown(string(kv.Key)); ok {
		e.stepDown(token, kv)
		return
	}
	token, ok := e.keys.ParseNotice(string(kv.Key))
	if !ok {
		return // a foreign key
	}
	n := decodeNotice(kv.Value)
	e.mu.Lock()
	p := e.permits[token]
	if box := e.mail.box(token); box != nil {
		box.notice = &n
	}
	e.mu.Unlock()
	if p != nil {
		word := noticed(p.gate.name, token, n)
		lost := p.lose(word.Cause, word.Reason)
		e.drop(p)
		e.freeSlot(p.claim)
		if lost != nil {
			// Not here: this goroutine watches the presence key.
			e.sess.background(func() { e.sess.opts.Trace.lost(lost) })
		}
	}
	e.sess.background(func() {
		_, _ = commit.Erase(e.ctx, e.sess.client, string(kv.Key), kv.CreateRevision, nil)
	})
}

func decodeNotice(value []byte) record.Notice {
	n, ok := record.DecodeNotice(value)
	if !ok {
		n = record.Notice{Cause: record.CauseEvicted, Reason: "the notice cannot be read"}
	}
	return n
}

// noticeFor looks for a notice of one of this session's requests. It returns ctx's error
// if that ends before etcd has answered, unless the lease has ended and the notice with it.
func (e *epoch) noticeFor(ctx context.Context, c *claim) (n record.Notice, ok bool, err error) {
	if n, ok := e.noticed(c); ok {
		return n, true, nil
	}
	// It was written in the same Txn, but this session's watch may lag.
	kvs, err := get(ctx, e.sess.client, e.keys.Notice(c.token))
	if err == nil && len(kvs) > 0 {
		return decodeNotice(kvs[0].Value), true, nil
	}
	n, ok = e.noticed(c) // the watch has brought it meanwhile, and it was removed
	if ok || err == nil || e.ctx.Err() != nil {
		return n, ok, nil
	}
	return n, false, ctx.Err()
}

// whyGone returns why a waiting request's key is gone.
func (g *gate) whyGone(ctx context.Context, e *epoch, c *claim, begun time.Time) error {
	if n, ok := e.noticed(c); ok {
		return noticed(g.name, c.token, n)
	}
	// If all requests of a lease have gone, the first few calls find that out.
	leave, err := g.turn(ctx, &g.sess.asking, begun)
	if err != nil {
		return err
	}
	defer leave()
	if !e.valid() {
		return errEpoch
	}
	if n, ok, _ := e.noticeFor(ctx, c); ok {
		return noticed(g.name, c.token, n)
	}
	return errAnew // deleted by hand, or the lease is gone and we hear of it soon
}

// noticed returns the notice of a request, if the watch has brought one.
func (e *epoch) noticed(c *claim) (n record.Notice, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.left.notice == nil {
		return n, false
	}
	return *c.left.notice, true
}

// noticed turns a notice into an error.
func noticed(name string, token int64, n record.Notice) *LostError {
	err := &LostError{Name: name, Token: token, Cause: ErrEvicted, Reason: because(n)}
	if n.Cause == record.CauseReleased {
		err.Cause = ErrReleased
	}
	return err
}

// because says who has left a notice, and why.
func because(n record.Notice) string {
	switch {
	case n.By == "":
		return n.Reason
	case n.Reason == "":
		return "by " + n.By
	}
	return "by " + n.By + ": " + n.Reason
}
