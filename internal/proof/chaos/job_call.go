package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
	"github.com/etcdkit/etcdkit/schedlock"
)

// jobCall is one call for a tick, and what its function does.
type jobCall struct {
	scheduled
	bound   time.Duration // of ctx
	wait    bool          // for the next tick, as a timer does
	ahead   int           // ticks from the present one
	takes   time.Duration
	effects int
	inEtcd  bool // effects go there, under the guard
	stuck   bool // works on after its context has ended
	failing int  // attempts up to this one fail
	panics  bool
	trigger bool // of a planned job: for a tick of its own
}

func drawJobCall(r *rand.Rand, j scheduled) jobCall {
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	o := jobCall{scheduled: j, bound: ms(300, 4000), effects: r.IntN(3), inEtcd: r.IntN(2) == 0}
	if r.IntN(10) == 0 {
		o.bound = ms(1, 60) // ends about when it is claimed
	}
	slow := j.period > time.Second
	switch n := r.IntN(100); {
	case n < 60:
		o.wait = !slow
	case n < 70:
		o.ahead = -1 - r.IntN(5) // its process was asleep
	case n < 73 && !slow:
		o.ahead = 1 + r.IntN(2) // its clock is fast
	}
	if j.longest > 0 {
		o.takes = time.Duration(r.Int64N(int64(j.longest)))
	}
	o.stuck = r.IntN(8) == 0
	if r.IntN(8) == 0 || j.failed > 0 && r.IntN(2) == 0 {
		o.failing = 1 + r.IntN(j.failed+2)
	}
	o.panics = r.IntN(30) == 0
	if j.planned {
		o.trigger = r.IntN(8) == 0
	}
	return o
}

var (
	errJob   = errors.New("the job's own error")
	errPanic = errors.New("the job's function has panicked")
)

// run waits for the tick, calls for it, and records all of it.
func (o jobCall) run(ctx context.Context, p *Process, l *locker, register Register) (res schedlock.Result, err error) {
	now := l.now()
	tick := now.Truncate(o.period)
	if o.wait {
		tick = tick.Add(o.period)
		if err := Sleep(ctx, tick.Sub(now)); err != nil {
			return res, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.bound)
	defer cancel()
	tick = tick.Add(time.Duration(o.ahead) * o.period)
	if o.apart > 0 {
		if o, tick, err = o.asLine(ctx, l); err != nil {
			return res, err
		}
	}
	opts, attr := o.options(tick)
	call := p.rec.Call(history.Event{Name: history.JobDo, Gate: o.gate(), Attr: attr})
	// ctx bounds what comes before the function, and after it.
	asked := p.rec.Call(history.Event{Name: history.JobClaim, Gate: o.gate(), Until: deadline(ctx)})
	claimed := sync.OnceFunc(func() { asked.Return(history.Event{Outcome: history.OK}) })
	var end *history.Call
	failed := false
	defer func() {
		if v := recover(); v != nil {
			if v != errPanic { //nolint:errorlint // the value of the panic
				panic(v)
			}
			end.Return(history.Event{Outcome: history.OK})
			call.Return(history.Event{Outcome: history.Unknown, Error: errPanic.Error()})
		}
	}()
	res, err = l.call(ctx, o, func(ctx context.Context, r *schedlock.Run) error {
		claimed()
		switch { // the attempt before was here, too
		case end != nil && failed:
			end.Return(history.Event{Outcome: history.OK})
		case end != nil:
			end.Return(history.Event{Outcome: history.Fail, Error: "lost"})
		}
		start := p.rec.Call(history.Event{Name: history.JobStart, Gate: o.gate(), ID: r.Tick().Format(time.RFC3339Nano), N: int64(r.Attempt()), Token: r.Token(),
			Attr: map[string]string{"call": call.Tag(), "retries": attr["retries"], "atleast": attr["atleast"], "lateby": attr["lateby"],
				"retryfailed": attr["retryfailed"], "pause": attr["pause"], "apart": attr["apart"]}})
		belief := start.Granted(r.Token())
		o.work(ctx, p, r, belief, register)
		belief.Check(r)
		belief.End(history.Released)
		end = p.rec.Call(history.Event{Name: history.Release, Gate: o.gate(), Token: r.Token(), Until: deadline(ctx)})
		failed = r.Attempt() <= o.failing && r.Err() == nil
		switch {
		case o.panics:
			panic(errPanic)
		case r.Attempt() <= o.failing:
			return errJob
		}
		return nil
	}, opts)
	claimed()
	if end != nil {
		e := history.Event{Outcome: history.OK} // or soon, in the background
		if res.Outcome == schedlock.Lost {
			e.Outcome, e.Error = history.Fail, fmt.Sprint(err)
		}
		end.Return(e)
	}
	if res.Outcome == schedlock.NotClaimed {
		outcome.Return(call, err)
		return res, err
	}
	e := history.Event{Outcome: history.OK, Cause: res.Outcome.String(), Token: res.Token, Attr: map[string]string{"tick": res.Tick.Format(time.RFC3339Nano)}}
	if err != nil {
		e.Error = err.Error()
	}
	call.Return(e)
	p.Env.Stats.Add("job "+o.name+": "+e.Cause, 1)
	if errors.Is(err, errJob) && res.Outcome == schedlock.Failed {
		return res, nil
	}
	return res, err
}

// asLine is the call of a line of a crontab, on each machine, as the command `jobs run --every` makes it: by the latest record
// it is for a new tick, the time of the call, or for that of the record, whose run it may repeat.
func (o jobCall) asLine(ctx context.Context, l *locker) (jobCall, time.Time, error) {
	now := l.now().Truncate(time.Millisecond)
	all, err := l.History(ctx, o.name)
	if err != nil && !errors.Is(err, schedlock.ErrUnknownJob) {
		return o, now, err
	}
	for _, r := range all {
		if r.Tick.After(now.Add(time.Minute)) { // of a clock that is wrong
			continue
		}
		if now.Sub(r.Tick) < o.apart {
			o.apart = 0
			return o, r.Tick, nil
		}
		break
	}
	return o, now, nil
}

// work is what the function does until its time is over or its run has ended. One that
// is stuck works on for a while then.
func (o jobCall) work(ctx context.Context, p *Process, r *schedlock.Run, belief *history.Belief, register Register) {
	if o.inEtcd {
		register = nil
	}
	if r.Attempt() > 1 {
		o.takes = 0 // little was left to do; what comes late meets a run that has ended
	}
	begun, done := time.Now(), 0
	for belief.Check(r) {
		passed := time.Since(begun)
		if done < o.effects && passed >= o.takes*time.Duration(done)/time.Duration(o.effects) {
			done++
			p.act(r, o.gate(), register)
			continue
		}
		if passed >= o.takes {
			return
		}
		select {
		case <-time.After(min(3*time.Millisecond, o.takes-passed)):
		case <-ctx.Done():
			if r.Err() == nil {
				return // the caller wants no more
			}
		}
	}
	belief.End(runCause(r.Err()))
	if o.stuck {
		p.act(r, o.gate(), register)
		_ = Sleep(p.Env.life, p.plan.margin+300*time.Millisecond)
		p.act(r, o.gate(), register)
	}
}

// runCause names why a run has ended, in the words of a history.
func runCause(err error) string {
	switch {
	case errors.Is(err, schedlock.ErrTooLong):
		return history.HeldTooLong
	case errors.Is(err, schedlock.ErrUnlocked):
		return history.Evicted
	}
	return outcome.Cause(err)
}
