package schedlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Func is the work of a job. Its ctx ends when the caller's ctx ends, when the run is lost, and
// when AtMost has passed; context.Cause returns the reason.
type Func func(ctx context.Context, r *Run) error

// Do runs fn for a tick of the job. If another call has claimed the tick, a run of another tick is
// active, the job is paused or cools down, or it is too late for the tick, Do does not run fn and
// returns at once: the Result has the reason, and the error is nil. (With Retries or RetryFailed
// the call may be on standby first.) Without Tick and Every each call is a tick of its own, so that only calls at
// the same time exclude each other.
//
// Without Planned, Do knows no schedule: there is no next fire time, and no alert that the job does not start. An alert on the age
// of its latest success replaces it (docs/observability.md, Jobs).
//
// A name has up to 255 bytes of UTF-8, without control characters.
//
// If fn was started, the error is fn's own, joined with a *LostError (ErrLost) if the run was lost,
// or with ErrTooLong. If fn was not started, the error is ErrInvalid, ErrClosed, a *SettingsError
// (ErrSettings), an error of etcd's, or ctx's error joined with what the call waited for;
// everything that the call left in etcd is then removed or expires.
//
// ctx bounds both the wait for etcd and fn. If ctx has no deadline and LateBy is not given, the call
// waits without a bound while etcd is unavailable. When fn has returned, its outcome is recorded even if ctx has ended, in
// the background if necessary. A panic of fn, and runtime.Goexit, are recorded and then continue; a panic, if RetryFailed
// allows another attempt of this call, only after the last one.
//
// If etcd does not confirm that record within the session's ReleaseTimeout, or before ctx ends, Do
// returns fn's own result, and Result.Unconfirmed reports that. The run is not lost in this case:
// it was active when fn returned. If the run has failed, Do waits longer than ReleaseTimeout for the confirmation, while RetryFailed allows
// another attempt that could start in time. Do may be called concurrently.
func (l *Locker) Do(ctx context.Context, name string, fn Func, opts ...CallOption) (res Result, err error) {
	defer l.reports.callDone(&res, &err)
	res.Job = name
	r, err := newRequest(opts)
	err = cmp.Or(checkName(name), err)
	if err == nil && fn == nil {
		err = invalid("the function is nil")
	}
	if err != nil {
		return res, l.reports.refuse(ctx, name, r.tick, fmt.Errorf("run job %q: %w", name, err))
	}
	return l.do(ctx, name, fn, r)
}

// do runs fn for a tick. If the run is lost it makes further attempts, as Retries allows.
func (l *Locker) do(ctx context.Context, name string, fn Func, r request) (Result, error) {
	now := l.opts.Now()
	tick := r.tickAt(now)
	if ahead := tick.Sub(now); ahead > l.opts.MaxSkew {
		err := fmt.Errorf("run job %q, tick %s: %w", name, stamp(tick), invalid("the tick is %v in the future (Options.MaxSkew allows %v)", ahead.Round(time.Millisecond), l.opts.MaxSkew))
		return Result{Job: name, Tick: tick}, l.reports.refuse(ctx, name, tick, err)
	}
	if r.periodic && r.again.IsZero() {
		r.again = tick.Add(r.every)
		r.next = r.again
	}
	j, err := l.jobs.hold(name), errRemoved
	defer l.jobs.release(j)
	r.starts.register(func() { err = j.use(r.fingerprint()) }) // not after Remove, which has forgotten the settings
	if err != nil {
		return Result{Job: name, Tick: tick}, l.reports.refuse(ctx, name, tick, fmt.Errorf("run job %q: %w", name, err))
	}
	res, last, err := (&claim{Locker: l, job: j, request: r}).attempts(ctx, tick, fn)
	if p, ok := errors.AsType[*panicked](last); ok && !r.own {
		if l.opts.Done != nil {
			l.opts.Done(res, err) // the call does not return
		}
		panic(p.value)
	}
	return res, err
}

// due returns the tick for which a library calls now, and false if none has come. If the call is a little
// early, it waits for the tick.
func (l *Locker) due(ctx context.Context, times *timetable) (time.Time, bool) {
	times.setBack(l.horizon())
	tick, in, ok := times.due(l.opts.Now())
	if in > 0 {
		ctx, cancel := l.untilClose(ctx)
		defer cancel()
		select {
		case <-time.After(in):
		case <-ctx.Done(): // the claim returns the reason
		}
	}
	return tick, ok
}

// noTick is the result of a call for a job of which no tick has come.
func noTick(l *Locker, name string) (res Result, err error) {
	defer l.reports.callDone(&res, &err)
	return Result{Job: name, Outcome: Late}, nil
}

// scheduled runs one tick of a timetable.
func (l *Locker) scheduled(ctx context.Context, name string, fn Func, r request, times *timetable, tick time.Time) (res Result, err error) {
	defer l.reports.callDone(&res, &err)
	times.setBack(l.horizon())
	passed, ok := times.advance(tick)
	if !ok {
		return Result{Job: name, Tick: tick.UTC(), Outcome: Late}, nil
	}
	r.tick, r.passed, r.fires, r.times, r.lasting = tick, passed, times.print(), times, true
	r.next = times.after(tick)
	if r.within == 0 && !r.next.IsZero() {
		r.within = r.next.Sub(tick)
	}
	return l.do(ctx, name, fn, r)
}

// call is do for one that does not know its fire times, with the result reported to Options.Done.
func (l *Locker) call(ctx context.Context, name string, fn Func, r request, by any) (res Result, err error) {
	defer l.reports.callDone(&res, &err)
	r.lasting = true
	if !r.tick.IsZero() {
		return l.do(ctx, name, fn, r)
	}
	now := awaitDay(ctx, l, name, r, l.opts.Now())
	r.tick = r.tickAt(now)
	former := l.job(name).callers.ofPeriod(l.log, name, by, r.tick, r.every, now)
	res, err = l.do(ctx, name, fn, r)
	if err != nil || res.Outcome != Claimed || r.every%day != 0 {
		return res, err
	}
	next := nextDay(r.every, former, time.Time{}, now)
	if !next {
		if rec, err := l.Get(ctx, name, r.tick); err == nil {
			next = nextDay(r.every, former, rec.Start, now)
		}
	}
	if !next {
		return res, err
	}
	return l.do(ctx, name, fn, r.halfway(now))
}

// stackOf is the stack of a panic, if an error is of one.
func stackOf(err error) zap.Field {
	if p, ok := errors.AsType[*panicked](err); ok {
		return zap.ByteString("stack", p.stack)
	}
	return zap.Skip()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
