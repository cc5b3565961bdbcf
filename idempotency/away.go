package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency/internal/silence"
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

	mu     sync.Mutex
	silent silent
	warned time.Time           // when it was last logged that handlers run without a claim
	left   map[string]*Attempt // by ref
}

// patient is which of the calls that ask in an outage waits as long as it may, rather than for outage.Every:
// an etcd that has come back and needs longer than that for an answer would be away for ever.
const patient = 10

func newAway(sess *engine.Session) *away {
	return &away{sess: sess, outage: outage.New[struct{}](nil), left: map[string]*Attempt{}}
}

// ask is called before a call asks etcd for its request. It returns a ctx that also ends when the call has
// waited for its first answer for as long as it may. In an outage it returns an error for a call that is to be refused at
// once.
func (w *away) ask(ctx context.Context, set *settings) (context.Context, *asking, error) {
	a := &asking{away: w, set: set, bound: set.silence}
	if set.silence == 0 {
		return ctx, a, nil
	}
	if w.outage.On() {
		known, _ := w.sess.Unavailable()
		switch turn, err := w.outage.Turn(time.Now(), known.LastAnswer); turn {
		case outage.Refuse:
			return ctx, nil, fmt.Errorf("refused without a request to etcd, which has answered none for %v (StoreTimeout); one a second asks again: %w", set.silence, err)
		case outage.Probe:
			if w.probes.Add(1)%patient != 0 {
				a.bound = min(a.bound, outage.Every)
			}
		}
	}
	ctx, a.giveUp = context.WithCancelCause(ctx)
	a.since = time.Now()
	a.clock = silence.Start(a.bound, a.passed)
	return ctx, a, nil
}

// asking is a call that asks etcd for its request. One without a bound learns nothing, and says nothing of an outage.
type asking struct {
	away     *away
	set      *settings
	bound    time.Duration
	since    time.Time
	clock    *silence.Clock // nil without a bound
	giveUp   context.CancelCauseFunc
	answered atomic.Bool
}

// met ends the bound: etcd has answered, or one of its members.
func (a *asking) met() { a.answered.Store(true) }

// passed is called for each part of the wait.
func (a *asking) passed(p silence.Part) (more bool) {
	vain := a.away.vain(a, p, a.set.silence)
	if p.Ran >= a.bound && !a.answered.Load() {
		a.giveUp(context.DeadlineExceeded)
		return false
	}
	return vain || !a.answered.Load()
}

// end is called when the call asks no more. What is missing to its bound at most is what its caller's clock began earlier.
func (a *asking) end() {
	if a.clock == nil {
		return
	}
	if p, ok := a.clock.Stop(); ok && p.Ran > p.To.Sub(p.From) { // a shorter wait is no silence
		a.away.vain(a, p, a.set.silence-a.set.silence/10)
	}
	a.giveUp(nil)
}

// vain adds a part of a call's wait to the silence of etcd, and reports whether the wait has been in vain until now. An outage
// begins when the silence has lasted as long as a call may wait, whichever calls have met it: each of their clients may leave
// earlier.
func (w *away) vain(a *asking, p silence.Part, enough time.Duration) bool {
	last := w.outage.LastAnswer()
	if last.After(a.since) {
		return false
	}
	w.mu.Lock()
	w.silent = w.silent.and(p, last, a.set.silence)
	silent := w.silent
	w.mu.Unlock()
	if silent.waited < enough || w.outage.On() {
		return true
	}
	if o, ok := w.sess.Unanswered(silent.since); ok {
		w.outage.Unanswered(&concurrency.UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err}, struct{}{}, silent.since, silent.since)
	}
	return true
}

// silent is a time in which etcd has answered no call of the store.
type silent struct {
	since, until time.Time
	waited       time.Duration // of it: while a call waited
}

// and returns the silence with a part of a call's wait. It begins anew with that if etcd has answered since it began, or no
// call has waited for as long as one may.
func (s silent) and(p silence.Part, last time.Time, bound time.Duration) silent {
	from := p.From
	if last.After(s.since) || from.Sub(s.until) > bound {
		s = silent{since: from, until: from}
	}
	if s.until.After(from) {
		from = s.until
	}
	if p.To.After(from) {
		s.waited, s.until = s.waited+p.To.Sub(from), p.To
	}
	return s
}

// within returns a ctx that also ends after that bound, unless answered is called before; 0 is none.
func within(ctx context.Context, bound time.Duration) (_ context.Context, answered func()) {
	if bound == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := silence.Start(bound, func(p silence.Part) bool {
		if p.Ran >= bound {
			cancel(context.DeadlineExceeded)
		}
		return p.Ran < bound
	})
	return ctx, func() { c.Stop() }
}

// refused ends an outage if the error of a call shows that etcd has answered it.
func (w *away) refused(err error) {
	if err != nil && !commit.Away(err) && !errors.Is(err, ErrClosed) {
		w.outage.Answered()
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

// runs reports whether a run without a claim has not ended.
func (w *away) runs(a *Attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left[a.entry.Ref] == a
}

// warns reports whether that is to be logged now: at most once a minute.
func (w *away) warns(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.warned) < time.Minute {
		return false
	}
	w.warned = now
	return true
}
