package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/outage"
)

// away is what a Store knows while etcd does not answer: that it does not, and the requests at which this
// process has made an attempt whose end etcd does not have. It is safe for concurrent use.
type away struct {
	sess   *engine.Session
	outage *outage.Detector[struct{}]
	probes atomic.Int64 // how many calls have asked in outages

	mu   sync.Mutex
	left map[string]*Attempt // by ref
}

// patient is which of the calls that ask in an outage waits as long as it may, rather than for outage.Every:
// an etcd that has come back and needs longer than that for an answer would be away for ever.
const patient = 10

func newAway(sess *engine.Session) *away {
	return &away{sess: sess, outage: outage.New[struct{}](nil), left: map[string]*Attempt{}}
}

// ask is called before a call asks etcd for its request. It returns a ctx that also ends when the call has
// waited for its first answer for as long as it may; answered ends that bound. In an outage it returns an
// error for a call that is to be refused at once.
func (w *away) ask(ctx context.Context, set *settings) (_ context.Context, answered func(), err error) {
	bound := set.silence
	if bound == 0 {
		return ctx, func() {}, nil
	}
	if w.outage.On() {
		known, _ := w.sess.Unavailable()
		switch turn, err := w.outage.Turn(time.Now(), known.LastAnswer); turn {
		case outage.Refuse:
			return ctx, nil, fmt.Errorf("refused without a request to etcd, since an earlier one was not answered within %v (StoreTimeout); one a second asks again: %w", bound, err)
		case outage.Probe:
			if w.probes.Add(1)%patient != 0 {
				bound = min(bound, outage.Every)
			}
		}
	}
	ctx, answered = within(ctx, bound)
	return ctx, answered, nil
}

// within returns a ctx that also ends after that bound, unless answered is called before; 0 is none.
func within(ctx context.Context, bound time.Duration) (_ context.Context, answered func()) {
	if bound == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(bound, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { t.Stop() }
}

// refused ends an outage if the error of a call shows that etcd has answered it.
func (w *away) refused(err error) {
	if err != nil && !commit.Away(err) && !errors.Is(err, ErrClosed) {
		w.outage.Answered()
	}
}

// unanswered learns from the error of a call that began at a time and has seen nothing of its request. An
// outage begins if the call has waited in vain for as long as it may, and etcd has not answered another call
// meanwhile. What is missing to that time at most is what its caller's clock began earlier.
func (w *away) unanswered(err error, begun time.Time, set *settings) {
	silent, ok := errors.AsType[*concurrency.UnavailableError](err)
	if ok && set.silence > 0 && time.Since(begun) >= set.silence-set.silence/10 {
		w.outage.Unanswered(silent, struct{}{}, begun, begun)
	}
}

// leave notes that an attempt was lost for this process, unless it is settled.
func (w *away) leave(a *Attempt) {
	a.settling.unlessOver(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.left[a.entry.Ref] = a
	})
}

// settle notes that etcd has the end of an attempt, or that this process has given it up.
func (w *away) settle(a *Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left[a.entry.Ref] == a {
		delete(w.left, a.entry.Ref)
	}
}

// knows reports whether this process has made an attempt at a request whose end etcd does not have.
func (w *away) knows(ref string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left[ref] != nil
}
