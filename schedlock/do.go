package schedlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Func is the work of a job. Its ctx ends when the caller's ends, when the run is lost,
// and when AtMost has passed; context.Cause tells which.
type Func func(ctx context.Context, r *Run) error

// Do runs fn for a tick of the job, if no other process does or has done so; otherwise it
// does not wait but tells so in the Result, and the error is nil. Without Tick and Every,
// each call is a tick of its own, so that only calls at the same time exclude each other.
//
// A name is up to 255 bytes of UTF-8, without control characters.
//
// The error is fn's own, joined with a *LostError (ErrLost) if the run was lost, or with
// ErrTooLong. If the job could not be claimed it is ErrInvalid, ErrClosed, a
// *SettingsError (ErrSettings), one of etcd's, or ctx's, joined with what was in the way; then fn
// was not started, and nothing stays behind that does not end by itself. ctx bounds the
// wait for etcd, and fn; without a deadline in it, a call waits as long as etcd is away
// and LateBy allows. A panic of fn is recorded, and then goes on; so does
// runtime.Goexit. When fn has returned, its outcome is recorded even if ctx has ended,
// in the background if need be.
//
// If etcd does not confirm that record within the session's ReleaseTimeout, or before ctx
// ends, Do returns fn's own result all the same, and Result.Unconfirmed says so. The run is not
// lost then: it went on when fn returned.
func (l *Locker) Do(ctx context.Context, name string, fn Func, opts ...CallOption) (res Result, err error) {
	defer l.tell(&res, &err)
	res.Job = name
	r, err := newRequest(opts)
	if bad := checkName(name); bad != nil {
		err = bad
	}
	if err == nil && fn == nil {
		err = invalid("the function is nil")
	}
	if err != nil {
		return res, fmt.Errorf("run job %q: %w", name, err)
	}
	return l.do(ctx, name, fn, r)
}

// do runs fn for a tick, once or, as far as Retries allows, until it was not lost.
func (l *Locker) do(ctx context.Context, name string, fn Func, r request) (Result, error) {
	now := l.opts.now()
	tick := r.tickAt(now)
	res := Result{Job: name, Tick: tick}
	if ahead := tick.Sub(now); ahead > l.opts.MaxSkew {
		return res, fmt.Errorf("run job %q, tick %s: %w", name, stamp(tick), invalid("the tick is %v in the future (Options.MaxSkew allows %v)", ahead.Round(time.Millisecond), l.opts.MaxSkew))
	}
	if r.periodic && r.again.IsZero() {
		r.again = tick.Add(r.every)
	}
	j := l.job(name)
	if err := j.use(r.fingerprint()); err != nil {
		return res, fmt.Errorf("run job %q: %w", name, err)
	}
	var lost error // of the attempt before, if that was here
	for {
		c, this, err := l.claim(ctx, j, tick, r)
		if err != nil {
			err = fmt.Errorf("run job %q, tick %s: %w", name, stamp(tick), l.explain(err))
		}
		if c == nil && lost != nil {
			return res, errors.Join(lost, err) // what this call did was that run
		}
		if c == nil {
			return this, err
		}
		// Further attempts are at this tick, also if the call was for none.
		tick, r.tick = c.tick, c.tick
		this, err = l.run(ctx, j, c, fn, r)
		if errors.Is(err, errNotStarted) {
			if lost == nil {
				res = this
			}
			if ctx.Err() != nil {
				return res, errors.Join(lost, because(ctx, err))
			}
			r.anew = true
			continue
		}
		res, lost = this, err
		again := res.Outcome == Lost && !r.single && c.attempt <= r.retries && !errors.Is(err, ErrUnlocked)
		if !again || ctx.Err() != nil || l.accept.Err() != nil {
			return res, err
		}
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
