package concurrency

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/internal/share"
	"github.com/etcdkit/etcdkit/observe"
)

// What the limiting middlewares reach behind the door of a Semaphore or a RateLimiter.

// Weight returns the weight of a call of Acquire, for the middlewares, or ErrInvalid if the call would be
// refused without a request to etcd.
func (s semaphore) Weight(ctx context.Context, opts []AcquireOption) (int64, error) {
	r, err := s.request(ctx, false, opts)
	return r.Weight, err
}

// Share is the part of a limit that this process may use while it cannot reach etcd, under the
// outage policy Share of limithttp and limitgrpc.
type Share struct {
	Limit    int // as last read from etcd; 0 if it is not known
	Sessions int // that share the limit, as last counted; 0 if that is not known
	Size     int // Limit divided by Sessions, rounded down; 0 if Sessions is 0
	// Running is the weight of the requests of this process that run under its share and have no
	// permit yet.
	Running int
	// Permits is the weight of the permits that this process was granted and has not released, lost
	// ones included. In an outage they use the share as well.
	Permits int
}

// Share returns this process's share of the limit, as last known; it does no I/O. That of a
// KeyedLimiter is the share of its Total. ok is false if no middleware of this session has the
// outage policy Share for this limit.
//
// Only requests of such a middleware run under the share. Another call for a permit, such as Acquire
// of the same limiter, does not run without a permit, and after an outage it does not wait until
// the work under the share has permits: what runs in all processes is then bounded by twice the limit
// for this outage, as during it; each later cut of other processes can add the limit once more. Its
// permits count in Permits.
func (s *Semaphore) Share() (_ Share, ok bool) {
	q := s.in().queue
	if q == nil || q.invalid != nil {
		return Share{}, false
	}
	divided := q.Sharing.Share()
	if divided == nil {
		return Share{}, false
	}
	f := divided.Facts()
	return Share{int(f.Limit), int(f.Sessions), int(f.Size()), int(f.Running), int(f.Permits)}, true
}

// Divide returns this process's share of the limit, for the middlewares, or why it has none.
func (s semaphore) Divide() (*share.Share, error) {
	q := s.queue
	switch {
	case q == nil, q.base != nil && q.invalid == nil: // the second is the semaphore of one key, in Single
		return nil, invalid("the outage policy Share needs a limit of all keys together: a KeyedLimiter with a total, or Single of a NewSemaphore")
	case q.invalid != nil:
		return nil, invalid("the outage policy Share divides the total of limiter %q, and %w", q.name, q.invalid)
	}
	return q.Sharing.Divide(), nil
}

// ReportOutage reports to hooks that the outage policy of a middleware decides from now on, because of err,
// or, if err is nil, that it does so no more, after that time.
func (s semaphore) ReportOutage(policy string, err error, lasted time.Duration) {
	if s.queue != nil {
		s.queue.reportOutage(policy, err, lasted)
	}
}

// AskInOutage asks etcd, in the background and while an outage lasts in which no request does, whether it answers again.
func (s semaphore) AskInOutage(idle func(now time.Time) (on, idle bool), answered func()) {
	if s.queue != nil {
		s.queue.askInOutage(idle, answered)
	}
}

// Closed reports whether the session takes no further call with ctx.
func (s semaphore) Closed(ctx context.Context) bool {
	return s.queue != nil && engine.Refuses(ctx, s.queue.sess)
}

// Closing returns a channel that is closed then.
func (s semaphore) Closing(ctx context.Context) <-chan struct{} {
	if s.queue == nil {
		return nil
	}
	return engine.Accepts(ctx, s.queue.sess).Done()
}

// Answers reports whether the error of a call shows that etcd answers: a limit is reached, what is stored does not admit
// the call, or etcd refuses what the call or its session asks for. A refusal by this process alone, such as of an option,
// does not show that.
func (semaphore) Answers(err error) bool { return answers(err) }

// Answered returns when etcd last answered the session.
func (s semaphore) Answered() time.Time { return s.queue.answeredAt() }

func (q *sessionQueue) answeredAt() time.Time {
	if q == nil { // in tests of the middleware
		return time.Now()
	}
	o, _ := q.sess.Unavailable()
	return o.LastAnswer
}

// Silent returns for how long etcd has been silent, and the error of a call that this ends; 0 and nil if it answers.
func (s semaphore) Silent() (lasts time.Duration, err error) { return s.queue.silent() }

func (q *sessionQueue) silent() (lasts time.Duration, err error) {
	if q == nil { // in tests of the middleware
		return 0, nil
	}
	if away := q.unavailable(); away != nil && !answers(away) {
		return time.Since(away.Since), q.failed("acquire", away)
	}
	return 0, nil
}

func answers(err error) bool {
	if silent, ok := errors.AsType[*UnavailableError](err); ok {
		err = silent.Err // with which etcd refuses the session a lease
	}
	_, shown := errors.AsType[shownBy](err)
	return shown || errors.Is(err, ErrFull) || errors.Is(err, ErrHeld) || errors.Is(err, ErrLimitMismatch) || errors.Is(err, limit.ErrUnreadable) || refuses(err)
}

// shownBy is an error of a kind that this process can find by itself as well, for which etcd has answered.
type shownBy struct{ error }

func (e shownBy) Unwrap() error { return e.error }

// refuses reports whether an error is an answer of etcd's.
func refuses(err error) bool { return err != nil && !commit.Transient(err) }

// ReportOutage is that of a semaphore.
func (l *rateLimiter) ReportOutage(policy string, err error, lasted time.Duration) {
	l.queue.reportOutage(policy, err, lasted)
}

// AskInOutage is that of a semaphore.
func (l *rateLimiter) AskInOutage(idle func(now time.Time) (on, idle bool), answered func()) {
	l.queue.askInOutage(idle, answered)
}

// Closed is that of a semaphore.
func (l *rateLimiter) Closed(ctx context.Context) bool { return engine.Refuses(ctx, l.queue.sess) }

// Answers is that of a semaphore.
func (*rateLimiter) Answers(err error) bool { return answers(err) }

// Answered is that of a semaphore.
func (l *rateLimiter) Answered() time.Time { return l.queue.answeredAt() }

// Silent is that of a semaphore.
func (l *rateLimiter) Silent() (lasts time.Duration, err error) { return l.queue.silent() }

func (q *sessionQueue) reportOutage(policy string, err error, lasted time.Duration) {
	c := q.call("", 0, 0)
	e := observe.OutagePolicy{Namespace: q.sess.Hooks().Namespace(), Kind: c.Kind, Name: c.Name, Policy: policy, Active: err != nil, Err: err}
	if err == nil {
		e.Lasted = lasted
	}
	q.sess.Post(e)
}

// askInOutage asks etcd in an outage as long as no request does, and calls answered at its first answer.
func (q *sessionQueue) askInOutage(idle func(now time.Time) (on, idle bool), answered func()) {
	q.sess.Callback(func() {
		t := time.NewTicker(outage.Every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-q.sess.Accepting().Done():
				return
			}
			on, alone := idle(time.Now())
			if !on {
				return
			}
			if alone && q.answered() {
				q.contain("OnOutage", answered)
				return
			}
		}
	})
}

// answered asks whether etcd answers. A refusal is an answer. A session without a lease does not ask: its requests would
// wait for one, unless etcd refuses it.
func (q *sessionQueue) answered() bool {
	if !q.sess.Trusted() {
		o, _ := q.sess.Unavailable()
		return refuses(o.Err)
	}
	ctx, cancel := context.WithTimeout(q.sess.Accepting(), outage.Every)
	defer cancel()
	_, err := q.sess.Get(ctx, q.Keys.Limit)
	return err == nil || refuses(err)
}

// Contain calls, in the background, what calls a hook of a middleware, an option of that name: a panic there would end the
// process.
func (s semaphore) Contain(option string, call func()) { s.queue.contain(option, call) }

func (q *sessionQueue) contain(option string, call func()) {
	defer func() {
		if v := recover(); v != nil && q != nil {
			q.panics.Log(q.sess.Log(), "a hook has panicked: an option of a middleware; what called it continues: correct the hook",
				option, zap.String("option", option), v)
		}
	}()
	call()
}
