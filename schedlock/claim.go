package schedlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// claimed is a tick that this process has claimed.
type claimed struct {
	epoch   *engine.Epoch
	tick    time.Time
	attempt int
	token   int64
	sent    time.Time // before the claim was sent
	leave   func()    // ends what Close waits for
	begun   func()    // ends what Remove waits for
	record  record.Run
	lock    record.Lock
	before  string           // the record of the attempt before, or ""
	plan    string           // as the claim stores it, or ""
	planned []clientv3.Op    // put back what was stored before plan, if that is known
	older   []string         // keys of the latest run records, this one included, latest first
	aged    time.Time        // up to which records may be removed by their age, as lost was read
	lost    []lostRun        // of those that may be removed although lost runs are looked for among them
	spare   clientv3.LeaseID // of the cooldown, or 0
}

// claim is one call's way to a tick: what it asks for, of which job. Several claims may be sent, for one
// tick or, after a lost run, for its further attempts.
type claim struct {
	*Locker
	job *job
	request
	cooling   bool            // the tick was skipped since the job cools down
	discarded <-chan struct{} // closed when the latest claim of unknown outcome is removed; nil: there is none
}

// seen is take as hooks see it.
func (k *claim) seen(ctx context.Context, tick time.Time) (*claimed, Result, error) {
	begun := time.Now()
	call := observe.Call{Op: observe.Claim, Kind: observe.Job, Name: k.job.name, Tick: tick}
	if k.periodic {
		call.Every = k.every
	}
	within, span := k.sess.Hooks().Start(ctx, call)
	defer span.Unwind(begun) // a schedule is the caller's
	c, res, err := k.take(within, tick)
	if span != nil {
		o := observe.Outcome{Err: err, Took: time.Since(begun), Tick: res.Tick}
		if c != nil {
			o.Token, o.Tick, o.Attempt = c.token, c.tick, c.attempt
		}
		o.Result, o.Reason = endOfClaim(c != nil, res.Outcome, k.cooling, err, ctx.Err())
		span.End(o)
	}
	return c, res, err
}

// take claims a tick for this process. If it returns nil and no error, the Result has the reason.
func (k *claim) take(ctx context.Context, tick time.Time) (got *claimed, res Result, err error) {
	begun, ok := k.starts.begin()
	if !ok {
		return nil, Result{Job: k.job.name, Tick: tick}, errRemoved
	}
	defer func() {
		if got == nil { // or the schedule has panicked
			begun()
		}
	}()
	sent, intime := k.bound(ctx, tick, k.opts.Now())
	defer intime()
	ctx, cancel := k.untilClose(sent)
	defer cancel()
	ctx, stop := k.starts.until(ctx)
	defer stop()
	p := plan{tick: tick, attempt: 1}
	p.settings, p.value = k.job.expected(k.shared())
	c, res, err := k.ask(ctx, sent, p)
	if c != nil {
		c.begun = begun
	}
	if tooLate(ctx, err) && !errors.Is(err, ErrSettings) && !(k.lasting && commit.Mendable(err)) {
		if err != errLate { //nolint:errorlint // joined with what was in the way
			k.log.Warn("a tick was not started in time: etcd did not answer", zap.String("job", k.job.name), zap.Time("tick", tick), zap.Error(err))
		}
		res.Outcome, err = Late, nil
	}
	return c, res, err
}

// ask sends claims until the tick is claimed by this process, or until it is decided that it is not.
// ctx ends with untilClose, or when Remove begins. sent does not: it is the ctx of a claim in flight.
func (k *claim) ask(ctx, sent context.Context, p plan) (*claimed, Result, error) {
	res := Result{Job: k.job.name, Tick: p.tick}
	if err := ended(ctx); err != nil {
		return nil, res, err
	}
	var pause commit.Backoff
	var refused refusals
	for {
		c, next, err := k.try(ctx, sent, p)
		if err == nil && next.action == read {
			next, err = k.obstacle(ctx, p)
		}
		if err != nil {
			if err = refused.await(ctx, k, err); err == nil {
				continue
			}
		}
		if next.action == send {
			if next.plan.seen = p.seen; next.plan.mod != p.mod {
				next.plan.seen = time.Now()
			}
			p = next.plan
		}
		res.Tick, res.Outcome, res.Owner, res.Paused = p.tick, next.outcome, next.owner, next.paused
		k.cooling = next.cooling
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
func (k *claim) try(ctx, sent context.Context, p plan) (*claimed, decision, error) {
	instead := func(err error) (*claimed, decision, error) {
		h, _ := k.job.seen(k.job.keys.Run(p.tick))
		if next := k.unread(p, h, false); next.action == skip {
			return nil, next, nil
		}
		return nil, decision{}, err
	}
	if k.ordered() || p.pause > 0 { // which counts for a call that has withdrawn a claim, too
		seen, err := k.wait(ctx, p)
		if err != nil {
			return instead(err)
		}
		if next := k.unread(p, seen, false); next.action != send {
			return nil, next, nil
		}
	}
	leave, err := k.turns.take(ctx)
	if err != nil {
		return instead(err)
	}
	defer leave()
	// An event may have arrived meanwhile. And the clock is read again, because timers do not count the
	// time in which the machine was suspended.
	h, _ := k.job.seen(k.job.keys.Run(p.tick))
	next := k.unread(p, h, k.late(p, k.opts.Now()))
	if next.action != send {
		return nil, next, nil
	}
	c, err := k.write(ctx, sent, p)
	if c == nil {
		next.action = read
	}
	return c, next, err
}

// obstacle reads why a claim had no effect, and waits on standby if that is decided. It returns what
// to do then: send another claim, or skip the tick.
func (k *claim) obstacle(ctx context.Context, p plan) (decision, error) {
	asked, freed, disagreed := time.Now(), false, false
	for {
		_, changed := k.job.seen(k.job.keys.Run(p.tick)) // before the read, so that no event is missed
		st, err := k.look(ctx, p.tick)
		if err != nil {
			return decision{}, err
		}
		if !freed {
			if freed, err = endOrphaned(ctx, k.Locker, st); err != nil {
				return decision{}, err
			} else if freed {
				continue
			}
		}
		settled, as := st.settled()
		k.job.read(settled, as)
		warnOfFires(k.log, k.job, k.shared(), settled)
		if now := k.opts.Now(); st.latest.After(now.Add(early)) {
			k.job.ahead.Do(func() { warnOfAhead(k.log, k.job.name, st.latest.Sub(now), k.Clocks()) })
		}
		next := st.cooled(st.decide(k.job.name, p.tick, k.request, k.sess.Lease()), k.request, k.opts.Now())
		if disagreed { // others may have started the tick meanwhile
			next = st.declined(next, k.job.name, k.request, k.sess.Lease())
		}
		switch next.action {
		case refuse:
			// Settings may be those of a process that was killed, whose lease lasts for a TTL. Its tick would be started by none.
			left := cmp.Or(k.opts.patience, k.sess.TTL()+time.Second) - time.Since(asked)
			disagreed = k.timed() && !next.taken && errors.Is(next.err, ErrSettings)
			if disagreed && left > 0 && waitEvent(ctx, left, changed) == nil {
				continue
			}
			k.sess.Later(k.job.cooldown.revokeSpares)
			return decision{}, next.err
		case delegate:
			k.standby(k.job, p.tick, k.request)
			next.action = skip
			return next, nil
		case await:
			if err := waitEvent(ctx, k.sess.TTL(), changed); err != nil {
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

// wait waits for this process's place in the order of the tick. An event ends it early: the claim of
// the tick or, before a further attempt, any event of the job. wait returns what events have shown.
func (k *claim) wait(ctx context.Context, p plan) (observed, error) {
	run := k.job.keys.Run(p.tick)
	if h, _ := k.job.seen(run); h.claimed && p.attempt == 1 {
		return h, nil
	}
	asked := time.Now()
	d, err := place(ctx, k.Locker, k.job, run)
	if err != nil {
		return observed{}, k.endError(ctx, asked, err)
	}
	if k.within > 0 {
		d = min(d, k.within/4) // the claim needs most of the time
	}
	if p.pause > 0 {
		d = max(d, p.pause-time.Since(p.seen))
	}
	own := time.After(d)
	for {
		h, changed := k.job.seen(run)
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

// waitEvent waits for an event of a job. An event may be lost, so it waits for the TTL of a session at most.
func waitEvent(ctx context.Context, ttl time.Duration, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-time.After(ttl):
	case <-ctx.Done():
		return ended(ctx)
	}
	return nil
}

// place returns how long this process waits for those before it in the order of a tick or a request.
func place(ctx context.Context, l *Locker, j *job, of string) (time.Duration, error) {
	e, err := l.sess.Live(ctx)
	if err != nil {
		return 0, err
	}
	runners, others := j.split(l.clocks.leases())
	return delay(int64(e.Lease()), runners, others, of), nil
}

// turns are the claims of a process in flight.
type turns chan struct{}

// take waits until fewer than mostTurns claims of this process are in flight. A claim that hangs gives up
// its turn after a while.
func (t turns) take(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		end := sync.OnceFunc(func() { <-t })
		timer := time.AfterFunc(hung, end)
		return func() { timer.Stop(); end() }, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}
