package concurrency

import (
	"context"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Election makes at most one of its candidates the leader at a time, in all processes whose
// sessions share its prefix and namespace. Candidates become leader in the order in which
// etcd received them. It is the queue of a Mutex, with what a long-lived leader needs: a
// published note, a way to find the leader, and a way to request that it step down.
//
// The leader holds a Permit, here called a term. Tokens of terms strictly rise from leader to
// leader: see Permit.Token.
//
// An Election is safe for concurrent use. Two calls of one process are two candidates.
type Election struct{ queue *sessionQueue }

// NewElection returns the election of that name. It does no I/O. It returns ErrInvalid if the
// session is nil or the name is not valid (see NewSemaphore), and ErrClosed if the session is
// closed.
func NewElection(s *Session, name string) (*Election, error) {
	q, err := s.queue(keyspace.Election, name, 1)
	if err != nil {
		return nil, fmt.Errorf("new election %q: %w", name, err)
	}
	return &Election{queue: q}, nil
}

// Campaign blocks until this candidate is the leader or ctx is done, and returns its term.
// Release of the term resigns. Others read the text of Note, such as an address, as
// Leader.Note. The other options are those of Mutex.Lock. ctx, the errors and the state after
// a failure are those of Semaphore.Acquire, without *LimitMismatchError; any Weight but 1 is
// ErrInvalid.
//
// The term ends as any permit does, and also when its key is deleted by hand, as soon as the
// session learns of it. A leader should watch Permit.StopRequested too, or use Lead.
func (el *Election) Campaign(ctx context.Context, opts ...AcquireOption) (*Permit, error) {
	r, err := candidate(opts)
	if err != nil {
		err = el.queue.failed(r.doing, err)
	}
	return el.campaign(ctx, r, err)
}

// candidate returns the request of a candidate with these options.
func candidate(opts []AcquireOption) (request, error) {
	r, err := newRequest("campaign in", false, opts)
	if err == nil && r.Weight != 1 {
		err = invalid("Weight(%d): the limit of an election is 1", r.Weight)
	}
	return r, err
}

func (el *Election) campaign(ctx context.Context, r request, invalid error) (*Permit, error) {
	// Close asks each leader to resign at once, so a campaign is no part of the work that it waits for.
	term, err := terms{}.acquire(life.Apart(ctx), el.queue, r, invalid)
	if err != nil {
		return nil, err
	}
	el.queue.sess.Background(term.followKey)
	return term, nil
}

// followKey ends a term whose key is gone, until it ends otherwise. For a permit that is held
// for a moment its Release reports that; a leader for months has to be stopped. Where few requests
// wait, it follows the queue, as they do; where many do, only its own key: a leader pays nothing for them.
func (p *Permit) followKey() {
	if !p.followQueue() {
		return
	}
	mirror.AwaitGone(p.Context(), p.queue.sess.Source(), p.ticket.Key, p.token)
	if p.Context().Err() == nil {
		p.keyGone()
	}
}

// followQueue follows the queue until the term ends, or crowded is set.
func (p *Permit) followQueue() (crowded bool) {
	q := p.queue
	m := q.View.Join()
	defer m.Leave()
	for p.Context().Err() == nil { // a term that was released first is not looked for
		gone, changed := m.Gone(p.ticket.Key, p.token)
		if gone {
			p.keyGone()
			return false
		}
		if int64(m.Requests()) > q.Crowd.Horizon.Distance(limit.SeenN(q.Limit)) {
			return true
		}
		select {
		case <-changed:
		case <-m.Replaced:
			m.Next()
		case <-p.Context().Done():
		}
	}
	return false
}

// Leader is the leader of an election as of one revision of etcd. Without a leader only
// Revision is set, and Elected returns false.
type Leader struct {
	Token int64  // of the term; strictly rises from leader to leader
	Owner string // SessionOptions.Owner of its session
	Note  string // the text of its option Note
	Lease clientv3.LeaseID
	// Requested is when it began to campaign, by its own clock. The time of its election is
	// not stored: Watch shows it.
	Requested time.Time
	Revision  int64 // of etcd, as of which all this is true
}

// Elected reports whether there is a leader.
func (l Leader) Elected() bool { return l.Token != 0 }

func leading(st Status) Leader {
	if len(st.Holders) == 0 {
		return Leader{Revision: st.Revision}
	}
	h := st.Holders[0] // of a limit of 1
	return Leader{Token: h.Token, Owner: h.Owner, Note: h.Note, Lease: h.Lease, Requested: h.Requested, Revision: st.Revision}
}

// Leader reads the present leader. The absence of a leader is not an error: Leader.Elected
// returns false then. The answer is true as of its revision and may be out of date when it
// arrives; a dead leader is shown until its lease has expired. It returns ErrClosed, ctx's
// error or one of etcd's.
func (el *Election) Leader(ctx context.Context) (Leader, error) {
	st, err := el.Status(ctx)
	if err != nil {
		return Leader{}, err
	}
	return leading(st), nil
}

// Watch yields the present leader and then each change, including the change to no leader
// (see Leader.Elected). The first answer is no older than the call, and none is older than
// the one before it, except after a restored backup. Terms in quick succession may be
// skipped, but never the last one.
//
// It ends when the loop ends, or with an error as its last pair: ErrClosed, ctx's error, or
// at its beginning one of etcd's.
func (el *Election) Watch(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var now Leader
		for st, err := range el.queue.watch(ctx) {
			if err != nil {
				yield(Leader{}, err)
				return
			}
			next := leading(st)
			if now.Revision > 0 && next.Token == now.Token && next.Lease == now.Lease {
				continue
			}
			now = next
			if !yield(now, nil) {
				return
			}
		}
	}
}

// Status reads the present state: the leader is the one holder, and the waiters are the
// candidates. It returns ErrClosed, ctx's error or one of etcd's.
func (el *Election) Status(ctx context.Context, opts ...StatusOption) (Status, error) {
	return el.queue.status(ctx, opts)
}

// EvictToken ends the term, or the candidacy, with this token, as Semaphore.EvictToken does.
// It is the forced form of StepDown: the next candidate may become leader before the former
// one learns of it. A process that runs Lead campaigns again. It returns ErrNotHeld and the
// other errors of Semaphore.Evict.
func (el *Election) EvictToken(ctx context.Context, token int64, reason string) error {
	return owners{el.queue}.endToken(ctx, token, record.Notice{Cause: record.CauseEvicted, Reason: reason})
}

// StepDown asks the present leader to release its term, and returns that leader. Without
// a leader it returns no error, and Elected of its result is false. A successor is never
// asked: if the term ends before the request arrives, the request has no effect, and the
// former leader is returned. The reason may be empty, or up to 1024 bytes of valid UTF-8.
//
// StepDown returns as soon as etcd has stored the request; it does not wait for the term to
// end (Watch shows that). In Lead, the context of the leader's function ends with a
// *StepDownError as its cause, and the term is released when the function has returned. A
// caller of Campaign receives the request through Permit.StopRequested; a leader that never
// checks keeps leading. If the leader's process has not seen yet that it leads, its request is withdrawn:
// Lead campaigns again, and Campaign returns a *LostError that matches ErrEvicted. To end a term without the
// leader's consent, use EvictToken.
//
// It returns ErrInvalid, ErrClosed, ctx's error or one of etcd's. After an error the
// request may have been stored or not; StepDown may safely be called again: the first request that
// the leader receives gives the reason.
func (el *Election) StepDown(ctx context.Context, reason string) (asked Leader, err error) {
	q := el.queue
	if err := engine.CheckReason(reason); err != nil {
		return Leader{}, q.failed("step down in", err)
	}
	err = q.do(ctx, func(ctx context.Context) error {
		v, err := q.Read(ctx)
		if err != nil {
			return err
		}
		if asked = leading(q.describe(queue.State{View: v})); !asked.Elected() {
			return nil
		}
		_, err = owners{q}.found().AskToStop(ctx, v.Holders[0], reason)
		return err
	})
	if err != nil {
		return Leader{}, q.failed("step down in", err)
	}
	return asked, nil
}

// RequestStop asks the leader whose term has this token to resign, or the candidate with this token to
// withdraw, as Semaphore.RequestStop does. It is StepDown for a leader that is known: another one is
// never asked. It returns ErrNotHeld if no live request has this token. Its other errors are those of
// StepDown.
func (el *Election) RequestStop(ctx context.Context, token int64, reason string) error {
	return owners{el.queue}.requestStop(ctx, token, reason)
}
