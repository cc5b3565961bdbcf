package schedlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// claimed is a tick that this process has claimed.
type claimed struct {
	epoch   *engine.Epoch
	tick    time.Time
	attempt int
	token   int64
	sent    time.Time // before the claim was sent
	leave   func()    // ends what Close waits for
	record  record.Run
	lock    record.Lock
	before  string           // the record of the attempt before, or ""
	older   []string         // keys of the latest run records, this one included, latest first
	spare   clientv3.LeaseID // of the cooldown, or 0
}

// claim claims a tick for this process. If it returns nil and no error, the Result has the reason.
func (l *Locker) claim(ctx context.Context, j *job, tick time.Time, r request) (*claimed, Result, error) {
	sent, intime := r.bound(ctx, tick, l.opts.Now())
	defer intime()
	ctx, cancel := l.untilClose(sent)
	defer cancel()
	c, res, err := l.ask(ctx, sent, j, plan{tick: tick, attempt: 1, settings: j.expected(r.shared())}, r)
	if tooLate(ctx, err) {
		if err != errLate { //nolint:errorlint // joined with what was in the way
			l.log.Warn("a tick was not started in time: etcd did not answer", zap.String("job", j.name), zap.Time("tick", tick), zap.Error(err))
		}
		res.Outcome, err = Late, nil
	}
	return c, res, err
}

// ask sends claims until the tick is claimed by this process, or until it is decided that it is not.
// ctx ends when Close begins. sent does not: it is the ctx of a claim in flight.
func (l *Locker) ask(ctx, sent context.Context, j *job, p plan, r request) (*claimed, Result, error) {
	res := Result{Job: j.name, Tick: p.tick}
	if err := ended(ctx); err != nil {
		return nil, res, err
	}
	var pause commit.Backoff
	for {
		c, next, err := l.try(ctx, sent, j, p, r)
		if err == nil && next.action == read {
			next, err = l.obstacle(ctx, j, p, r)
		}
		if next.action == send {
			if next.plan.seen = p.seen; next.plan.mod != p.mod {
				next.plan.seen = time.Now()
			}
			p = next.plan
		}
		res.Tick, res.Outcome, res.Owner, res.Paused = p.tick, next.outcome, next.owner, next.paused
		if c != nil || err != nil || next.action == skip {
			return c, res, err
		}
		if err := pause.Wait(ctx, nil); err != nil {
			return nil, res, joinEnd(ctx, err)
		}
	}
}

// try waits for this process's place in the order and for a turn, and sends a claim. It returns the
// claim, or what to do instead. If a wait fails, a tick that events have shown to be claimed is
// skipped all the same: that needs no etcd.
func (l *Locker) try(ctx, sent context.Context, j *job, p plan, r request) (*claimed, decision, error) {
	instead := func(err error) (*claimed, decision, error) {
		h, _ := j.seen(j.keys.Run(p.tick))
		if next := r.unread(p, h, false); next.action == skip {
			return nil, next, nil
		}
		return nil, decision{}, err
	}
	if r.ordered() {
		seen, err := l.wait(ctx, j, p, r)
		if err != nil {
			return instead(err)
		}
		if next := r.unread(p, seen, false); next.action != send {
			return nil, next, nil
		}
	}
	leave, err := l.turn(ctx)
	if err != nil {
		return instead(err)
	}
	defer leave()
	// An event may have arrived meanwhile. And the clock is read again, because timers do not count the
	// time in which the machine was suspended.
	h, _ := j.seen(j.keys.Run(p.tick))
	next := r.unread(p, h, r.late(p, l.opts.Now()))
	if next.action != send {
		return nil, next, nil
	}
	c, err := l.write(ctx, sent, j, p, r)
	if c == nil {
		next.action = read
	}
	return c, next, err
}

// obstacle reads why a claim had no effect, and waits on standby if that is decided. It returns what
// to do then: send another claim, or skip the tick.
func (l *Locker) obstacle(ctx context.Context, j *job, p plan, r request) (decision, error) {
	for {
		_, changed := j.seen(j.keys.Run(p.tick)) // before the read, so that no event is missed
		st, err := l.look(ctx, j, p.tick, r.since(p.tick))
		if err != nil {
			return decision{}, err
		}
		j.read(st.settled())
		warnOfFires(l.log, j, r.shared(), st.settled())
		if now := l.opts.Now(); st.latest.After(now.Add(early)) {
			j.ahead.Do(func() { warnOfAhead(l.log, j.name, st.latest.Sub(now), l.Clocks()) })
		}
		next := st.decide(j.name, p.tick, r, l.sess.Lease())
		switch next.action {
		case refuse:
			l.sess.Background(func() { l.revokeSpares(j) })
			return decision{}, next.err
		case delegate:
			r.standby(j, p.tick, r)
			next.action = skip
			return next, nil
		case await:
			if err := l.waitEvent(ctx, changed); err != nil {
				if err != errLate { //nolint:errorlint // by this package
					err = fmt.Errorf("%w: the run of this tick by %s had not ended", err, next.owner)
				}
				return decision{}, err
			}
		default:
			return next, nil
		}
	}
}

// waitEvent waits for an event of the job.
func (l *Locker) waitEvent(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-time.After(l.sess.TTL()): // in case an event is lost
	case <-ctx.Done():
		return ended(ctx)
	}
	return nil
}

// wait waits for this process's place in the order of the tick. An event ends it early: the claim of
// the tick or, before a further attempt, any event of the job. wait returns what events have shown.
func (l *Locker) wait(ctx context.Context, j *job, p plan, r request) (observed, error) {
	run := j.keys.Run(p.tick)
	if h, _ := j.seen(run); h.claimed && p.attempt == 1 {
		return h, nil
	}
	asked := time.Now()
	d, err := place(ctx, l, j, run)
	if err != nil {
		return observed{}, l.endError(ctx, asked, err)
	}
	if r.within > 0 {
		d = min(d, r.within/4) // the claim needs most of the time
	}
	if p.pause > 0 {
		d = max(d, p.pause-time.Since(p.seen))
	}
	own := time.After(d)
	for {
		h, changed := j.seen(run)
		if h.claimed && p.attempt == 1 {
			return h, nil
		}
		select {
		case <-changed:
			if p.attempt > 1 {
				return observed{changed: true}, nil
			}
		case <-own:
			return h, nil
		case <-ctx.Done():
			return observed{}, ended(ctx)
		}
	}
}

// place returns how long this process waits for those before it in the order of a tick or a request.
func place(ctx context.Context, l *Locker, j *job, of string) (time.Duration, error) {
	e, err := l.sess.Live(ctx)
	if err != nil {
		return 0, err
	}
	if l.opts.Sticky {
		of = j.keys.Range
	}
	runners, others := j.split(l.clocks.leases())
	return delay(int64(e.Lease()), runners, others, of), nil
}

// turn waits until fewer than turns claims of this process are in flight. A claim that hangs gives up
// its turn after a while.
func (l *Locker) turn(ctx context.Context) (leave func(), err error) {
	select {
	case l.turns <- struct{}{}:
		end := sync.OnceFunc(func() { <-l.turns })
		t := time.AfterFunc(hung, end)
		return func() { t.Stop(); end() }, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}
