package commit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/join"
)

// sent is the Txn of a creation that is under way. The end of its caller's ctx does not cancel
// it: a cancelled one may have been applied or not, and settling that voids the creations of
// all other callers of the session, which then have to repeat them. The response, which usually
// comes a moment later, settles it at no cost. It is not safe for concurrent use.
type sent struct {
	part      *part
	kv        clientv3.KV
	done      chan struct{}      // closed when a request of its own has ended; nil while it has none
	cancel    context.CancelFunc // of that
	abandoned bool
}

// send sends a Txn, alone or by the group. It has the bound of a call and the values of ctx. If
// ctx ends before it is sent, it is not sent. One that waits for others needs no goroutine of its own.
func (t Together) send(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *sent {
	s := &sent{part: t.part(cmps, then, otherwise), kv: kv}
	switch joins := s.part.begin(); {
	case !joins:
		s.call(ctx, s.part.end)
	case t.Group.queue.Enter(s.part):
		s.call(ctx, func() { s.part.end(); t.Group.queue.Next() })
	}
	return s
}

// call sends the Txn in a request of its own, and calls ended after it.
func (s *sent) call(ctx context.Context, ended func()) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		defer cancel()
		defer ended()
		s.part.alone(ctx, detached, s.kv)
	}()
}

// answered waits for the response, and returns false if ctx ends first.
func (s *sent) answered(ctx context.Context) bool {
	if s.done == nil {
		if answered, alone := s.shared(ctx); !alone {
			return answered
		}
		s.call(ctx, s.part.end)
	}
	a, b, c := either.All(ctx)
	select {
	case <-s.done:
		return true
	case <-a:
	case <-b:
	case <-c:
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// shared is answered for a Txn that waits for others, or is under way with them. alone reports that it has waited as long as
// it may. If ctx ends while it waits, it is not sent.
func (s *sent) shared(ctx context.Context) (answered, alone bool) {
	p := s.part
	a, b, c := either.All(ctx)
	select {
	case <-p.Sent():
		return !p.Late(), p.Late()
	case <-a:
	case <-b:
	case <-c:
	}
	if p.Group.queue.Leave(p) {
		p.end()
		p.err = unsentError{ctx.Err()}
		s.done = make(chan struct{})
		close(s.done)
		return true, false
	}
	select {
	case <-p.Sent():
		return !p.Late(), p.Late()
	default:
		return false, false
	}
}

// abandon cancels a request of its own, and waits for its end. It leaves one with others, which the group's ctx ends.
func (s *sent) abandon() {
	if s.done == nil {
		s.abandoned = true
		return
	}
	if s.cancel != nil {
		s.cancel()
	}
	<-s.done
}

// result is the response, once answered has returned true or after abandon.
func (s *sent) result() (*clientv3.TxnResponse, error) {
	if s.abandoned {
		return nil, context.Canceled
	}
	return s.part.resp, s.part.err
}

// unsentError says that a request was not sent, because its caller's ctx had ended.
type unsentError struct{ cause error }

// Unsent says of an error that ended the wait to send a request that it was not sent.
func Unsent(cause error) error { return unsentError{cause} }

func (e unsentError) Error() string { return "not sent: " + e.cause.Error() }
func (e unsentError) Unwrap() error { return e.cause }

// PendingError says that it is not known whether a key was created. Discard settles it.
type PendingError struct {
	fence    *Fence
	creation Creation
	at       int64 // the fence's mod revision when it was sent
	sent     *sent // under way when its caller's ctx ended, or nil
	token    int64 // from the response, or 0
	void     bool  // the response says that nothing was created
	answered bool  // no copy is under way
	cause    error
}

// Error says why the outcome is not known.
func (e *PendingError) Error() string {
	return fmt.Sprintf("etcd has not confirmed the request: %v", e.cause)
}

// Unwrap returns the reason.
func (e *PendingError) Unwrap() error { return e.cause }

// Discard settles the creation and removes its keys. It repeats until that is done or ctx ends.
// It returns nil once nothing of the creation exists or can still appear, which includes the
// end of its lease. When it returns, no call of this process for the creation is under way.
func (e *PendingError) Discard(ctx context.Context, also ...string) error {
	return e.DiscardWith(ctx, nil, also...)
}

// DiscardWith is Discard with more puts and deletes in the Txn that removes the key, if it exists:
// what restores what the creation has overwritten, for instance.
func (e *PendingError) DiscardWith(ctx context.Context, with []clientv3.Op, also ...string) error {
	pause := Backoff{Most: longPause}
	for {
		err := e.TryDiscard(ctx, with, also...)
		if err == nil {
			return nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// TryDiscard is DiscardWith once: after an error the caller has to call it again, or it is as if ctx had ended.
func (e *PendingError) TryDiscard(ctx context.Context, with []clientv3.Op, also ...string) error {
	err := e.discard(ctx, with, also)
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Settle returns nil once no copy of the creation can be applied any more, which includes the end of the session; what
// was created may exist then. It returns an error of etcd's, such as that it is out of space, or ctx's: the caller has
// to call it again.
func (e *PendingError) Settle(ctx context.Context) error {
	e.awaitResponse(ctx)
	if e.void || e.answered || e.token > 0 {
		return nil
	}
	_, err := e.fence.settle(ctx, e.creation.Key, e.at)
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Abandon cancels the call that is still under way, if there is one, and returns when it has
// ended. It is for a closed session, the end of whose lease removes its keys.
func (e *PendingError) Abandon() {
	if e.sent != nil {
		e.sent.abandon()
	}
}

// discardWait is how long Discard waits for a response whose caller is gone. The created key
// may hold up others until then.
const discardWait = time.Second

// awaitResponse takes the response to the call that is still under way. If it does not come
// within discardWait, or if ctx ends first, the call is cancelled and its response is lost.
func (e *PendingError) awaitResponse(ctx context.Context) {
	if e.sent == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, discardWait)
	defer cancel()
	if !e.sent.answered(ctx) {
		e.Abandon()
	}
	resp, err := e.sent.result()
	e.sent = nil
	switch {
	case err == nil && resp.Succeeded:
		e.token = resp.Header.Revision
		return
	case err == nil: // as in Create, an earlier copy may be why it failed
		e.answered = true
		return
	}
	switch classify(err) {
	case refused, busy, orphaned:
		e.void = true
	case answered:
		e.answered = true
	}
}

// discard reads the key and removes it. If etcd has responded, no copy is under way, and a
// linearizable read suffices unless the response has said everything. Otherwise copies must be
// shut out first, which takes a put. While etcd is out of space it refuses puts, but an
// existing key can be removed all the same.
func (e *PendingError) discard(ctx context.Context, with []clientv3.Op, also []string) error {
	e.awaitResponse(ctx)
	switch {
	case e.void:
		return nil
	case e.token > 0:
		_, err := RemoveWith(ctx, e.fence.kv, e.creation.Key, e.token, with, also...)
		return err
	}
	var settled error
	var kvs []*mvccpb.KeyValue
	if !e.answered {
		kvs, settled = e.fence.settle(ctx, e.creation.Key, e.at)
	}
	if e.answered || settled != nil && classify(settled) == answered {
		call, cancel := Call(ctx)
		defer cancel()
		resp, err := e.fence.kv.Get(call, e.creation.Key)
		if err != nil {
			return join.Errors(settled, err)
		}
		kvs = resp.Kvs
	}
	if len(kvs) > 0 && e.creation.Mine(kvs[0].Value) {
		if _, err := RemoveWith(ctx, e.fence.kv, e.creation.Key, kvs[0].CreateRevision, with, also...); err != nil {
			return join.Errors(settled, err)
		}
	}
	return settled
}
