package schedlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/hold"
	"github.com/etcdkit/etcdkit/internal/record"
)

// claimed is a tick that this process may start.
type claimed struct {
	epoch   hold.Epoch
	tick    time.Time
	attempt int
	token   int64
	sent    time.Time // before anything was sent for it
	leave   func()    // lets Close go on
	record  record.Run
	lock    record.Lock
	before  string   // the record of the attempt before, or ""
	older   []string // keys of the latest run records, this one included, latest first
	spare   clientv3.LeaseID
}

// claim gets the right to start a tick, or tells in the Result why not.
func (l *Locker) claim(ctx context.Context, j *job, tick time.Time, s request) (*claimed, Result, error) {
	sent, intime := s.bound(ctx, tick, l.opts.now())
	defer intime()
	ctx, cancel := l.open(sent)
	defer cancel()
	c, res, err := l.ask(ctx, sent, j, tick, s)
	if err != nil && ended(ctx) == errLate {
		if err != errLate { //nolint:errorlint // joined with what was in the way
			l.log.Warn("a tick was not started in time: etcd did not answer", zap.String("job", j.name), zap.Time("tick", tick), zap.Error(err))
		}
		res.Outcome, err = Late, nil
	}
	return c, res, err
}

// ask asks until the tick is claimed, or until it is clear why not. ctx ends when Close
// begins; sent does not, and is that of what has been sent.
func (l *Locker) ask(ctx, sent context.Context, j *job, tick time.Time, s request) (*claimed, Result, error) {
	res := Result{Job: j.name, Tick: tick}
	if err := ended(ctx); err != nil {
		return nil, res, err
	}
	p := plan{attempt: 1, settings: j.stands(s.shared())}
	var pause commit.Backoff
	for {
		known, err := false, error(nil)
		if s.timed() && !s.anew {
			known, err = l.queue(ctx, j, res.Tick, s, p)
		}
		if by, ok, _ := j.seen(j.keys.Run(res.Tick)); ok && s.timed() && !s.anew && s.retries == 0 {
			res.Outcome, res.Holder = Claimed, by
			return nil, res, nil
		}
		var c *claimed
		if err == nil && !known {
			leave, ended := l.turn(ctx)
			if ended != nil {
				return nil, res, ended
			}
			// Timers count no time in which the machine slept, so the clock is read again.
			if s.late(res.Tick, p.attempt, l.opts.now()) {
				leave()
				res.Outcome = Late
				return nil, res, nil
			}
			if _, heard, _ := j.seen(j.keys.Run(res.Tick)); heard && s.timed() && !s.anew && p.attempt == 1 {
				leave()
				continue // while it waited for its turn
			}
			c, err = l.write(ctx, sent, j, res.Tick, s, p)
			leave()
		}
		if err != nil || c != nil {
			return c, res, err
		}
		next, again, err := l.obstacle(ctx, j, s, &res, &pause)
		if !again {
			return nil, res, err
		}
		p = next
		if err := pause.Wait(ctx, nil); err != nil {
			return nil, res, because(ctx, err)
		}
	}
}

// obstacle reads what is in the way of a claim, such as another run, a pause or other
// settings, and waits for its end where the call stands by. If the claim is to be sent again,
// it returns how, with the tick in res; otherwise res has the outcome, or there is an error.
func (l *Locker) obstacle(ctx context.Context, j *job, s request, res *Result, pause *commit.Backoff) (p plan, again bool, err error) {
	for asked := time.Now(); ; {
		_, _, changed := j.seen(j.keys.Run(res.Tick)) // before the read, so that no event is missed
		st, err := l.look(ctx, j, res.Tick)
		if err != nil {
			if commit.Transient(err) && pause.Wait(ctx, err) == nil {
				continue
			}
			return p, false, l.cut(ctx, asked, err)
		}
		next, out, err := st.decide(j, s, l.own())
		if err != nil {
			l.sess.Background(func() { l.giveBack(j) })
			return p, false, err
		}
		j.read(next.settings)
		switch {
		case out == standBy && s.aside != nil:
			s.aside(j, res.Tick, s)
			res.Outcome = Claimed
			res.Holder = st.holder(Claimed)
			return p, false, nil
		case out == standBy:
			if err := l.standBy(ctx, changed); err != nil {
				if by := st.holder(StillRunning); err != errLate { //nolint:errorlint // by this package
					err = fmt.Errorf("%w: the run of %s for this tick went on", err, by)
				}
				return p, false, err
			}
			asked = time.Now()
		case (out == Late || out == Claimed) && !s.timed():
			// The call is for no fire time but its own, and clocks differ.
			if st.latest.After(res.Tick) {
				res.Tick = st.latest
			}
			res.Tick = res.Tick.Add(smallest)
			next.attempt = 1
			return next, true, nil
		case out != 0:
			res.Outcome = out
			res.Holder = st.holder(out)
			if out == Paused {
				res.Paused = pauseOf(st.pause)
			}
			return p, false, nil
		default:
			return next, true, nil
		}
	}
}

// standBy waits for an event of the job.
func (l *Locker) standBy(ctx context.Context, changed <-chan struct{}) error {
	t := time.NewTimer(l.sess.TTL()) // an event may be lost
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return ended(ctx)
	}
	return nil
}

// queue lets those go first who come before this process in the order of the tick. known
// says that one of them has claimed it meanwhile.
func (l *Locker) queue(ctx context.Context, j *job, tick time.Time, s request, p plan) (known bool, err error) {
	if _, known, _ := j.seen(j.keys.Run(tick)); known && p.attempt == 1 {
		return true, nil
	}
	asked := time.Now()
	e, err := l.sess.Live(ctx)
	if err != nil {
		return false, l.cut(ctx, asked, err)
	}
	key := j.keys.Range
	if !l.opts.Sticky {
		key = j.keys.Run(tick)
	}
	runners, others := j.split(l.clocks.leases())
	d := delay(int64(e.Lease()), runners, others, key)
	if s.within > 0 {
		d = min(d, s.within/4) // most of the time is for the claim
	}
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		_, known, changed := j.seen(j.keys.Run(tick))
		if known && p.attempt == 1 {
			return true, nil
		}
		select {
		case <-changed:
			if p.attempt > 1 {
				return true, nil // look again
			}
		case <-t.C:
			return false, nil
		case <-ctx.Done():
			return false, ended(ctx)
		}
	}
}

// turn waits until few enough of this process's claims are on their way. One that hangs
// keeps the others from theirs for a while only.
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

// horizon bounds the claims that stand in the way of a tick: those beyond are of a
// process whose clock is wrong.
func (l *Locker) horizon() time.Time { return l.opts.now().Add(l.opts.MaxSkew + smallest) }

func none(first, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(first).WithRange(end), "=", 0)
}

// write sends the claim. It returns nil and no error if there is something in the way.
func (l *Locker) write(ctx, sent context.Context, j *job, tick time.Time, s request, p plan) (got *claimed, err error) {
	asked := time.Now()
	e, err := l.sess.Live(ctx)
	if err != nil {
		return nil, l.cut(ctx, asked, err)
	}
	// A claim that was sent is one that others have heard of and leave alone. So Close
	// waits for it, and for its run: to take it back would lose the tick.
	leave, ok := e.Enter()
	if !ok {
		return nil, nil
	}
	defer func() {
		if got == nil {
			leave()
		}
	}()
	sent, cancel := context.WithCancelCause(sent)
	defer cancel(nil)
	defer context.AfterFunc(l.sess.Context(), func() { cancel(endedBy{ErrClosed}) })()

	c := l.draft(e, tick, p)
	c.leave = leave
	if s.atLeast > 0 {
		if c.spare, err = l.spare(ctx, j, s.atLeast); err != nil {
			return nil, l.cut(ctx, asked, err)
		}
	}
	created, err := e.Fence().Create(sent, l.creation(j, c, s, p))
	if err == nil && created.Token != 0 {
		c.token = created.Token
		if len(created.Read) > 0 {
			for _, kv := range created.Read[0].GetResponseRange().Kvs {
				c.older = append(c.older, string(kv.Key))
			}
		}
		return c, nil
	}
	var pending *commit.PendingError
	if errors.As(err, &pending) {
		l.discard(j, c, pending)
		return nil, l.cut(sent, asked, err)
	}
	l.keep(j, c.spare)
	if err == nil || errors.Is(err, commit.ErrOccupied) || errors.Is(err, commit.ErrGone) { // the session's lease is gone, or the one of the hold
		return nil, nil
	}
	return nil, l.cut(sent, asked, err)
}

// draft returns what a claim is to write.
func (l *Locker) draft(e hold.Epoch, tick time.Time, p plan) *claimed {
	at, lease := l.opts.now().UnixMilli(), int64(e.Lease())
	return &claimed{epoch: e, tick: tick, attempt: p.attempt, before: p.before, sent: time.Now(),
		record: record.Run{State: record.RunRunning, Attempt: p.attempt, Holder: l.sess.Holder(), Lease: lease, StartMS: at},
		lock:   record.Lock{Nonce: l.sess.Nonce(), Lease: lease, Tick: stamp(tick), Attempt: p.attempt, Holder: l.sess.Holder(), AtMS: at},
	}
}

// creation returns the Txn of a claim. It takes effect if the tick was not claimed, or if its
// attempt before is as it was read; if no later tick was; and if nothing holds the job back.
func (l *Locker) creation(j *job, c *claimed, s request, p plan) commit.Creation {
	run := j.keys.Run(c.tick)
	// The tick's own record counts whatever the clock says: it may have been set back.
	horizon := max(j.keys.Run(l.horizon()), run+"\x00")
	ifs := []clientv3.Cmp{
		none(j.keys.Floor(c.tick), clientv3.GetPrefixRangeEnd(j.keys.Floors())),
		clientv3.Compare(clientv3.CreateRevision(j.keys.Hold()), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(j.keys.Pause()), "=", 0),
	}
	also := []clientv3.Op{clientv3.OpPut(run, c.record.Encode())}
	if p.attempt == 1 {
		ifs = append(ifs, none(run, horizon))
	} else {
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(run), "=", p.mod), none(run+"\x00", horizon))
	}
	settled := clientv3.Compare(clientv3.Value(j.keys.Settings()), "=", p.settings)
	if p.settings == "" {
		settled = clientv3.Compare(clientv3.CreateRevision(j.keys.Settings()), "=", 0)
	}
	ifs = append(ifs, settled)
	both, ok := agree(s.shared(), p.settings)
	if !ok {
		both = s.shared() // what this process has stored before
	}
	if both != p.settings {
		also = append(also, clientv3.OpPut(j.keys.Settings(), both, clientv3.WithLease(c.epoch.Lease())))
	}
	if c.spare != 0 {
		also = append(also, clientv3.OpPut(j.keys.Hold(), c.lock.Encode(), clientv3.WithLease(c.spare)))
	}
	return commit.Creation{
		Key: j.keys.Lock(), Value: c.lock.Encode(), If: ifs, Also: also,
		Mine: func(v []byte) bool {
			r, ok := record.DecodeLock(v)
			return ok && r.Nonce == c.lock.Nonce && r.Lease == c.lock.Lease
		},
		Read: []clientv3.Op{clientv3.OpGet(j.keys.Runs(), clientv3.WithRange(horizon), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(l.opts.Keep)+1))},
	}
}

// discard undoes in the background a claim that its caller has given up, and that may still
// take effect. The attempt before, if there was one, is then as it was.
func (l *Locker) discard(j *job, c *claimed, pending *commit.PendingError) {
	run := j.keys.Run(c.tick)
	undo, back := []string{j.keys.Hold()}, []clientv3.Op(nil)
	if c.before != "" {
		back = append(back, clientv3.OpPut(run, c.before))
	} else {
		undo = append(undo, run)
	}
	if !l.sess.Background(func() {
		_ = pending.DiscardAndPut(c.epoch.Context(), back, undo...)
		l.end(c.spare) // of a session that was lost meanwhile the hold may still come
	}) {
		pending.Abandon()
		l.end(c.spare)
	}
}
