package schedlock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// errNotStarted: the function was not started, because the session or the cooldown was lost after
// the claim, or because it became too late.
var errNotStarted = errors.New("not started")

// attempts runs fn for the tick and, as the request allows, again for it. last is the error of the last attempt. A claim is no part of
// the work under which ctx runs: its run would begin while Close asks each run to stop, and a tick that it gave up is started by none.
func (k *claim) attempts(ctx context.Context, tick time.Time, fn Func) (res Result, last, err error) {
	l, name := k.Locker, k.job.name
	for {
		c, this, err := k.seen(life.Apart(ctx), tick)
		if err != nil {
			err = fmt.Errorf("run job %q, tick %s: %w", name, stamp(tick), l.sess.Explain(err))
		}
		if c == nil && last != nil {
			return res, last, join.Errors(last, err) // the previous attempt is the result of this call
		}
		if c == nil {
			return this, nil, err
		}
		// Further attempts are for this tick, even if the call had no fire time.
		tick, k.tick, k.asked.mod = c.tick, c.tick, 0 // the request is used up
		this, err = k.run(ctx, c, fn)
		if errors.Is(err, errNotStarted) {
			if last == nil {
				res = this
			}
			if ctx.Err() != nil {
				return res, last, join.Errors(last, joinEnd(ctx, err))
			}
			k.withdrawn = true
			continue
		}
		res, last = this, err
		if !k.again(ctx, c, res, err) {
			return res, last, err
		}
		if res.Outcome == Failed {
			l.log.Warn("a run failed, and may be tried again", zap.String("job", name), zap.Time("tick", tick), zap.Int("attempt", c.attempt), zap.Error(err), stackOf(err))
		}
	}
}

// again reports whether this call makes another attempt after one with that result.
func (k *claim) again(ctx context.Context, c *claimed, res Result, err error) bool {
	return k.afterRun(c.attempt, res, err) && ctx.Err() == nil && !engine.Refuses(life.Apart(ctx), k.sess) && !k.starts.over()
}

// run starts the function for a claim, and returns when the run has ended.
func (k *claim) run(ctx context.Context, c *claimed, fn Func) (Result, error) {
	r := &Run{locker: k.Locker, job: k.job, claim: c, own: k.own, recorded: make(chan struct{})}
	r.attempts = func(ctx context.Context, res Result, err error) bool { return k.again(ctx, c, res, err) }
	r.intime = func(ctx context.Context) (context.Context, context.CancelFunc) {
		return k.boundRetry(ctx, c.tick, k.opts.Now())
	}
	if !c.epoch.Valid() || k.late(plan{tick: c.tick, attempt: c.attempt}, k.opts.Now()) || !k.job.cooldown.lasts(ctx, c) {
		err := k.withdraw(ctx, c)
		later := false
		if err == nil {
			k.sess.Later(func(ctx context.Context) { k.revoke(ctx, c.spare) })
		} else {
			_, later = k.remove(c, func(ctx context.Context) error { return k.withdraw(ctx, c) })
		}
		if !later {
			c.leave()
		}
		c.begun()
		return Result{Job: k.job.name, Tick: c.tick}, join.Errors(errNotStarted, err)
	}
	if k.asked.id != "" {
		k.within = k.lateBy // the minute of a request bounds its first start alone
	}
	r.outcome = Result{Job: k.job.name, Tick: c.tick, Attempt: c.attempt, Token: c.token}
	r.began = time.Now()
	within, span := k.sess.Hooks().Start(ctx, r.describe())
	r.span = span
	if k.own {
		within = context.WithoutCancel(within) // the run ends with its lease, and names the cause
	}
	r.life.Begin(within, c.epoch, (*ends)(r))
	r.stop = context.AfterFunc(c.epoch.Context(), func() { r.life.End(r.lostWithSession()) })
	r.stopRequested = sync.OnceValue(func() context.Context {
		ctx := either.Of(r.Context(), k.sess.Accepting(), ErrClosed)
		context.AfterFunc(ctx, ctx.Release)
		return ctx
	})
	r.atMost.Store(int64(k.atMost))
	_ = r.life.Bound(r.began.Add(k.atMost))
	k.job.begin(r)
	if c.spare != 0 {
		k.sess.Background(func() { k.job.cooldown.end(c, r.began, k.atLeast) })
	}

	if span != nil {
		context.AfterFunc(r.Context(), func() { r.endedAt.Store(int64(time.Since(r.began))) })
	}
	outer, _ := ctx.Value(key{}).(*running)
	work := context.WithValue(r.Context(), key{}, &running{r, outer})
	c.begun()
	r.call(work, ctx, fn)
	return r.outcome, r.err
}

// call calls the function, and finishes the run in whatever way the function ends.
func (r *Run) call(work, ctx context.Context, fn Func) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		err := errors.New("runtime.Goexit was called")
		if v != nil {
			err = &panicked{v, debug.Stack()}
		}
		r.finish(ctx, err)
		r.awaitAnswer(ctx, v != nil)
		r.report(ctx, true)
		if v != nil && (r.again(ctx) || r.own) {
			return
		}
		if done := r.locker.opts.Done; done != nil {
			done(r.outcome, r.err) // the call does not return
		}
		if v != nil {
			panic(v)
		}
	}()
	err := fn(work, r)
	returned = true
	if !r.finish(ctx, err) { // overdue has finished it
		r.err, r.outcome.Took = once(join.Errors(err, errDidNotReturn), r.Err()), time.Since(r.began)
	}
	r.awaitAnswer(ctx, true)
	r.report(ctx, false)
}

// panicked is the error of a function that has panicked. The panic continues after the last attempt of the call, in the goroutine
// of its caller. Where that goroutine is the Locker's own, no caller could recover it, and it is reported as any other failure.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// again reports whether the call makes another attempt after this run, which has ended.
func (r *Run) again(ctx context.Context) bool { return r.attempts(ctx, r.outcome, r.err) }

// overdue ends a run whose AtMost has passed. If the function does not return within the session's
// margin, the job is released nevertheless.
func (r *Run) overdue(cause error) {
	if !errors.Is(cause, ErrTooLong) {
		return
	}
	r.locker.sess.Callback(func() {
		select {
		case <-time.After(r.locker.sess.Margin()):
			// With a ctx that has ended, so that the caller does not wait for etcd here when
			// the function returns at last.
			over, cancel := context.WithCancel(context.Background())
			cancel()
			if r.finish(over, errDidNotReturn) {
				r.locker.log.Warn("a run continues after AtMost, and its job is released: another run may overlap with it. Set AtMost above the longest time that the job takes",
					zap.String("job", r.job.name), zap.Time("tick", r.claim.tick), zap.Duration("took", time.Since(r.began)))
				if r.span != nil {
					r.locker.sess.Hooks().Event(r.Context(), observe.Overrun{Call: r.span.Call, For: r.overran()})
				}
			}
		case <-r.claim.epoch.Context().Done():
		}
	})
}

// finish records the outcome and releases the job, once, and reports whether this call did. If ctx
// ends, or etcd does not answer in time, recording continues in the background.
func (r *Run) finish(ctx context.Context, failed error) (now bool) {
	r.settled.Do(func() {
		now = true
		_ = r.Err() // a pause may have outlasted the session, and no timer has fired yet
		r.life.End(ErrReturned)
		ended := r.life.Cause()
		r.stop()
		res := &r.outcome
		res.Took, res.Outcome, r.err = time.Since(r.began), Ran, failed
		switch {
		case errors.Is(ended, ErrTooLong):
			r.err = once(failed, ended)
			res.Outcome = Failed
		case errors.Is(ended, ErrLost):
			res.Outcome, r.err = Lost, once(failed, ended)
			r.removeLock()
			return
		case failed != nil:
			res.Outcome = Failed
		}
		rec := r.claim.record
		rec.State, rec.EndMS = record.RunDone, r.locker.opts.Now().UnixMilli()
		if r.err != nil {
			rec.State, rec.Error, rec.Final = record.RunFailed, record.Text(r.err.Error()), errors.Is(ended, ErrTooLong)
		}
		puts := append([]clientv3.Op{clientv3.OpPut(r.job.keys.Run(r.claim.tick), rec.Encode())}, r.trim()...)
		r.write(ctx, rec, puts)
	})
	return now
}

// unregister removes the run from the active runs of this process.
func (r *Run) unregister() {
	r.job.mu.Lock()
	delete(r.job.runs, r.claim.token)
	r.job.mu.Unlock()
	close(r.recorded)
	r.claim.leave()
}

// trim returns the operations that remove the oldest records and raise the floor, so that their
// ticks cannot be claimed again. The records were read with the claim; only a run of the job
// removes records. One of a lost run stays while no process has reported it, as long as it is among the
// latest, where it is looked for.
func (r *Run) trim() []clientv3.Op {
	l, keys := r.locker, r.job.keys
	// The floor must not include a tick that is in the future by any process's clock.
	slowest, ok := l.clocks.slowest(r.claim.epoch.Lease())
	if !ok {
		return nil
	}
	kept, outdated := r.job.losses.unreported(r.claim.lost), l.outdated()
	if r.claim.aged.Before(outdated) {
		outdated = r.claim.aged
	}
	// The latest record that is not of a wrong clock stays at any age and whatever their number: it is the one of Status.Last.
	horizon := keys.Run(l.horizonAt(slowest))
	latest := slices.IndexFunc(r.claim.older, func(key string) bool { return key < horizon })
	last := -1 // the newest record that is removed
	for i := len(r.claim.older) - 1; latest >= 0 && i > latest; i-- {
		tick, ok := keys.ParseRun(r.claim.older[i])
		if !ok || tick.After(slowest) || tick.Equal(r.claim.tick) || kept != "" && r.claim.older[i] >= kept {
			break
		}
		if i < l.opts.Keep && !tick.Before(outdated) {
			break
		}
		last = i
	}
	if last < 0 {
		return nil
	}
	tick, _ := keys.ParseRun(r.claim.older[last])
	record, floor := r.job.remaining(tick)
	return []clientv3.Op{
		clientv3.OpDelete(record, clientv3.WithRange(keys.Run(tick)+"\x00")),
		clientv3.OpDelete(floor, clientv3.WithRange(keys.Floor(tick))),
		clientv3.OpPut(keys.Floor(tick), ""),
	}
}

// removeLock removes a key in the place of a lost run's lock, if the session lives: another program
// has put it, possibly without a lease. Its create revision shows that no other run has it. A key
// that is gone, or that expires with the session, is left alone.
func (r *Run) removeLock() {
	lives := r.claim.epoch.Context().Err() == nil && !errors.Is(r.Err(), ErrUnlocked)
	if !lives || !r.locker.sess.Background(func() {
		defer r.unregister()
		_, _ = commit.Remove(r.claim.epoch.Context(), r.locker.kv, r.job.keys.Lock(), r.claim.token)
	}) {
		r.unregister()
	}
}
