package schedlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/record"
)

// errNotStarted reports that the session, or the hold, was lost between claim and start, or
// that it became too late.
var errNotStarted = errors.New("not started")

// takeBack undoes a claim whose function was not started: nothing shall look like it.
// The attempt before, if there was one, stands again as it was.
func (l *Locker) takeBack(ctx context.Context, j *job, c *claimed) error {
	run := j.keys.Run(c.tick)
	undo := []clientv3.Op{clientv3.OpDelete(run)}
	if c.before != "" {
		undo[0] = clientv3.OpPut(run, c.before)
	}
	for _, k := range []string{j.keys.Lock(), j.keys.Hold()} {
		undo = append(undo, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(k), "=", c.token)},
			[]clientv3.Op{clientv3.OpDelete(k)}, nil))
	}
	return l.repeat(ctx, func(ctx context.Context) error {
		_, err := l.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(run), "=", c.token)).Then(undo...).Commit()
		return err
	})
}

// run starts the function for a claim, and sees the run to its end.
func (l *Locker) run(ctx context.Context, j *job, c *claimed, fn Func, req request) (Result, error) {
	r := &Run{locker: l, job: j, epoch: c.epoch, claim: c, token: c.token, leave: c.leave}
	if !c.epoch.Valid() || req.late(c.tick, c.attempt, l.opts.now()) || !l.holds(ctx, c) {
		err := l.takeBack(ctx, j, c)
		l.sess.Background(func() {
			if err != nil {
				_ = l.takeBack(l.sess.Context(), j, c)
			}
			l.end(c.spare)
		})
		c.leave()
		return Result{Job: j.name, Tick: c.tick}, errors.Join(errNotStarted, err)
	}
	r.outcome = Result{Job: j.name, Tick: c.tick, Attempt: c.attempt, Token: c.token}
	r.began = time.Now()
	r.life = life.New(ctx, c.epoch, life.Ends{Lost: r.lostWithSession, Late: r.late, After: r.overdue})
	r.stop = context.AfterFunc(c.epoch.Context(), func() { r.life.Lose(r.lostWithSession()) })
	_ = r.life.Bound(r.began.Add(req.atMost))
	j.mu.Lock()
	j.runs[r.token] = r
	if j.taken > r.token {
		r.taken()
	}
	j.mu.Unlock()
	if c.spare != 0 {
		l.sess.Background(func() { l.release(c, r.began, req.atLeast) })
	}

	outer, _ := ctx.Value(key{}).(*running)
	work := context.WithValue(r.Context(), key{}, &running{r, outer})
	r.call(work, ctx, fn)
	return r.outcome, r.err
}

// call calls the function, and finishes the run however it ends.
func (r *Run) call(work, ctx context.Context, fn Func) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		err := errors.New("runtime.Goexit was called")
		if v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		r.finish(ctx, err)
		r.outcome.Unconfirmed = r.unconfirmed()
		if done := r.locker.opts.Done; done != nil {
			done(r.outcome, r.err) // the caller of this call is not there any more
		}
		if v != nil {
			panic(v)
		}
	}()
	err := fn(work, r)
	returned = true
	if !r.finish(ctx, err) { // AtMost was first
		r.err, r.outcome.Took = once(errors.Join(err, errUnheeded), r.Err()), time.Since(r.began)
	}
	r.outcome.Unconfirmed = r.unconfirmed()
}

// overdue is for a run that AtMost has ended. Its function should return now; if it does not,
// the job is released all the same, a margin later.
func (r *Run) overdue(cause error) {
	if !errors.Is(cause, ErrTooLong) {
		return
	}
	r.locker.sess.Background(func() {
		t := time.NewTimer(r.locker.sess.Margin())
		defer t.Stop()
		select {
		case <-t.C:
			// In the background: whoever called for the run shall not have to wait for
			// etcd here, when the function returns at last.
			over, cancel := context.WithCancel(context.Background())
			cancel()
			if r.finish(over, errUnheeded) {
				r.locker.log.Warn("a run goes on after AtMost, and its job is free: another run may overlap with it. Set AtMost above what the job takes",
					zap.String("job", r.job.name), zap.Time("tick", r.claim.tick), zap.Duration("took", time.Since(r.began)))
			}
		case <-r.epoch.Context().Done():
		}
	})
}

// finish records the outcome and gives the job free, once, and tells whether that was now.
// If ctx ends meanwhile, or has, or etcd does not answer in time, it goes on in the background.
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
			r.clear()
			return
		case failed != nil:
			res.Outcome = Failed
		}
		rec := r.claim.record
		rec.State, rec.EndMS = record.RunDone, r.locker.opts.now().UnixMilli()
		if r.err != nil {
			rec.State, rec.Error = record.RunFailed, record.Text(r.err.Error())
		}
		puts := append([]clientv3.Op{clientv3.OpPut(r.job.keys.Run(r.claim.tick), rec.Encode())}, r.trim()...)
		r.write(ctx, rec, puts)
	})
	return now
}

// forget ends what this process keeps of a run.
func (r *Run) forget() {
	r.job.mu.Lock()
	delete(r.job.runs, r.token)
	r.job.mu.Unlock()
	r.leave()
}

// trim removes the oldest records, and raises the floor so that their ticks stay closed.
// Which they are was read with the claim; nobody else has trimmed since.
func (r *Run) trim() []clientv3.Op {
	l, keys := r.locker, r.job.keys
	// The floor must close no tick of the future, as anybody's clock tells it.
	slowest, ok := l.clocks.slowest(r.epoch.Lease())
	if !ok {
		return nil
	}
	last := -1 // the newest record to go
	for i := len(r.claim.older) - 1; i >= 1; i-- {
		tick, ok := keys.ParseRun(r.claim.older[i])
		if !ok || tick.After(slowest) || tick.Equal(r.claim.tick) {
			break
		}
		if i < l.opts.Keep && l.opts.now().Sub(tick) <= l.opts.KeepFor {
			break
		}
		last = i
	}
	if last < 0 {
		return nil
	}
	tick, _ := keys.ParseRun(r.claim.older[last])
	return []clientv3.Op{
		clientv3.OpDelete(keys.Runs(), clientv3.WithRange(keys.Run(tick)+"\x00")),
		clientv3.OpDelete(keys.Floors(), clientv3.WithRange(keys.Floor(tick))),
		clientv3.OpPut(keys.Floor(tick), ""),
	}
}

// clear removes what stands in the place of a lost run's lock although its session lives:
// somebody has put the key again, maybe on no lease. Its create revision tells that no other
// run has taken it. What has gone, or goes with the session, is left alone.
func (r *Run) clear() {
	lives := r.epoch.Context().Err() == nil && !errors.Is(r.Err(), ErrUnlocked)
	if !lives || !r.locker.sess.Background(func() {
		defer r.forget()
		_, _ = commit.Remove(r.epoch.Context(), r.locker.client, r.job.keys.Lock(), r.token)
	}) {
		r.forget()
	}
}
