package schedlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Run is one run of a job, as its function sees it. It ends when the function returns, when the run
// is lost, or when AtMost has passed. It is safe for concurrent use.
type Run struct {
	locker  *Locker
	job     *job
	claim   *claimed
	life    life.Life
	stop    func() bool // of the watch over the epoch
	settled sync.Once
	outcome Result
	err     error

	own      bool                                                        // the goroutine of the call is the Locker's own
	attempts func(context.Context, Result, error) bool                   // whether the call makes another attempt after that end
	intime   func(context.Context) (context.Context, context.CancelFunc) // while an attempt after a failure may be recorded and start
	recorded chan struct{}                                               // closed when nothing more is written of the end

	open     error // an *UnconfirmedError if the record of the end is not confirmed, or nil; guarded by job.mu
	answered bool  // etcd has answered that; guarded by job.mu
	gone     error // a *LostError if its lock was gone before the end was recorded, or nil; guarded by job.mu

	began  time.Time
	atMost atomic.Int64 // from began, for the text of an error

	stopRequested func() context.Context // makes the context at its first call

	span    *hook.Span   // with hooks
	endedAt atomic.Int64 // with hooks: when its context has ended, from began; 0 before
}

// Job returns the job's name.
func (r *Run) Job() string { return r.job.name }

// Context returns the context of the run: the ctx of the function, without the values that the
// Locker has added.
func (r *Run) Context() context.Context { return r.life.Context() }

// StopRequested returns a context that ends when the run should stop soon: when Close of the
// session begins, with ErrClosed as the cause, or when the run ends, as Context does. Close waits
// for the active runs, and interrupts those that remain at its deadline; so work that can stop
// halfway should watch this context. Close waits for the runs that a cron library has started, too:
// call Close before waiting for the library to stop, so that these runs are requested to stop.
func (r *Run) StopRequested() context.Context {
	return r.stopRequested()
}

// Tick returns the fire time of the run, in UTC.
func (r *Run) Tick() time.Time { return r.claim.tick }

// Attempt returns the number of this start of the tick: 1 for the first, more after a lost run or, with RetryFailed, one that has failed.
func (r *Run) Attempt() int { return r.claim.attempt }

// Token returns the run's fencing token, a revision of etcd. It increases from run to run of the
// job: a resource that refuses tokens below the greatest one it has seen is safe from earlier runs.
func (r *Run) Token() int64 { return r.claim.token }

// Guard returns a condition for a Txn of the caller's own: the Txn takes effect only while the run
// is active in etcd, whatever the clocks do. The Txn's client must see the same keys as the
// session's. A Txn without an operation is answered by one member of etcd, which may be behind: give
// it a Then.
func (r *Run) Guard() clientv3.Cmp { return commit.Guard(r.job.keys.Lock(), r.claim.token) }

// Txn returns a Txn with the guard and the further conditions as its If. The caller sets Then and
// Else.
func (r *Run) Txn(ctx context.Context, more ...clientv3.Cmp) clientv3.Txn {
	return r.locker.kv.Txn(ctx).If(append(slices.Clip(more), r.Guard())...)
}

// Deadline returns the time until which the run may continue if nothing changes: the earlier of
// AtMost's end and the time until which the session's lease is trusted. Each renewal of the lease
// moves the second one.
func (r *Run) Deadline() time.Time { return r.life.Deadline() }

// Extend sets AtMost to end d from now, later or earlier than before. It returns ErrInvalid if d is
// below a millisecond, and the error of Err if the run has ended.
func (r *Run) Extend(d time.Duration) error {
	if d < smallest {
		return fmt.Errorf("extend run of job %q: %w", r.job.name, checkLength("Extend", d))
	}
	if err := r.Err(); err != nil {
		return err
	}
	since := time.Since(r.began)
	r.atMost.Store(int64((since + min(d, math.MaxInt64-since)).Round(smallest)))
	return r.life.Bound(time.Now().Add(d))
}

// Err returns nil while the run is active, and afterwards the reason why it has ended: a *LostError
// (ErrLost), ErrTooLong or ErrReturned. It reads the clocks, so its answer is right even after a
// pause of the process, before any timer has fired.
func (r *Run) Err() error { return r.life.Err() }

// Check asks etcd whether the run is active: one read, in which no clock takes part, and another one for the
// reason if its lock is gone. It returns nil if it is, a *LostError or the error of Err if the run has ended, and an error of etcd's or ctx's
// error if etcd has not answered; then the state of the run is unknown.
func (r *Run) Check(ctx context.Context) error {
	if err := r.Err(); err != nil {
		return err
	}
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := r.locker.kv.Get(call, r.job.keys.Lock())
	if err != nil {
		return fmt.Errorf("check run of job %q: %w", r.job.name, r.locker.sess.Explain(joinEnd(ctx, err)))
	}
	if len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != r.claim.token {
		r.lockMissing(call)
	}
	return r.Err()
}

// lockMissing ends a run whose lock is gone: by Unlock, as its record shows if the event of that was missed.
func (r *Run) lockMissing(ctx context.Context) {
	resp, err := r.locker.kv.Get(ctx, r.job.keys.Run(r.claim.tick))
	if err == nil && len(resp.Kvs) == 1 && resp.Kvs[0].ModRevision > r.claim.token {
		if by, ok := record.DecodeRun(resp.Kvs[0].Value); ok && by.State == record.RunUnlocked {
			r.unlocked(by)
		}
	}
	r.lockLost() // if it has not ended
}

func (r *Run) lost(cause, reason error) *LostError {
	err := &LostError{Job: r.job.name, Tick: r.claim.tick, Attempt: r.claim.attempt, Token: r.Token(), Cause: cmp.Or(cause, ErrLost)}
	if reason != nil {
		err.Reason = reason.Error()
	}
	return err
}

// ends is a run as its life knows it.
type ends Run

func (e *ends) LostCause() error  { return (*Run)(e).lostWithSession() }
func (e *ends) LateCause() error  { return (*Run)(e).late() }
func (e *ends) Ended(cause error) { (*Run)(e).overdue(cause) }

// Lost implements life.Hold.
func (e *ends) Lost(cause error) bool {
	return errors.Is(cause, ErrLost) || errors.Is(cause, ErrTooLong)
}

// lostWithSession returns the cause of a run that ends with its session.
func (r *Run) lostWithSession() error { return r.lost(r.claim.epoch.Why()) }

func (r *Run) late() error {
	return fmt.Errorf("job %q, tick %s: %w: AtMost of %v has passed", r.job.name, stamp(r.claim.tick), ErrTooLong, time.Duration(r.atMost.Load()))
}

var errLockGone = errors.New("its lock is gone from etcd")

// lockLost ends a run whose lock is gone although its session lives. The caller may have locked the
// job.
func (r *Run) lockLost() { r.life.End(r.lost(ErrLost, errLockGone)) }

// unlocked ends a run on which Unlock was called. The caller may have locked the job.
func (r *Run) unlocked(by record.Run) { r.life.End(r.lost(ErrUnlocked, whyUnlocked(by))) }

// whyUnlocked returns the operator that has unlocked a run, and the reason.
func whyUnlocked(by record.Run) error {
	var why []string
	if by.By != "" {
		why = append(why, "by "+by.By)
	}
	if by.Error != "" {
		why = append(why, by.Error)
	}
	return errors.New(strings.Join(why, ": "))
}

type key struct{}

// running is the value of a run's context: the run, and the runs around it.
type running struct {
	run   *Run
	outer *running
}

// FromContext returns the run whose function got ctx, or a context from which ctx is derived. Of
// nested runs it returns the innermost one.
func FromContext(ctx context.Context) (*Run, bool) {
	if in, ok := ctx.Value(key{}).(*running); ok {
		return in.run, true
	}
	return nil, false
}

// MustHold panics unless ctx belongs to a run of the job that is active, as far as this process
// knows. It protects work that must never be called outside its job.
func MustHold(ctx context.Context, job string) {
	in, _ := ctx.Value(key{}).(*running)
	for ; in != nil; in = in.outer {
		if in.run.job.name == job {
			if err := in.run.Err(); err != nil {
				panic("schedlock: " + err.Error())
			}
			return
		}
	}
	panic("schedlock: not within a run of job \"" + job + "\"")
}
