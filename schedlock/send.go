package schedlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// horizon returns the latest tick whose claim keeps earlier ticks from starting: a process that claims
// beyond it has a wrong clock.
func (l *Locker) horizon() time.Time { return l.opts.Now().Add(l.opts.MaxSkew + smallest) }

func none(first, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(first).WithRange(end), "=", 0)
}

// write sends a claim. It returns nil and no error if the claim has no effect.
func (l *Locker) write(ctx, sent context.Context, j *job, p plan, r request) (got *claimed, err error) {
	asked := time.Now()
	e, err := l.sess.Live(ctx)
	if err != nil {
		return nil, l.endError(ctx, asked, err)
	}
	// Once a claim is sent, other processes may have received its event and skip the tick. So Close waits
	// for the claim and for its run: withdrawing it would lose the tick.
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

	c := l.draft(e, p, r)
	c.leave = leave
	if r.atLeast > 0 {
		if c.spare, err = l.spare(ctx, j, r.atLeast); err != nil {
			return nil, l.endError(ctx, asked, err)
		}
	}
	created, err := e.Fence().Create(sent, l.creation(j, c, p, r))
	if err == nil && created.Token != 0 {
		c.token = created.Token
		if len(created.Read) > 0 {
			for _, kv := range created.Read[0].GetResponseRange().Kvs {
				c.older = append(c.older, string(kv.Key))
			}
		}
		afterClaim(l, j, c, p.mod)
		return c, nil
	}
	if pending, ok := errors.AsType[*commit.PendingError](err); ok {
		l.discard(j, c, pending)
		return nil, l.endError(sent, asked, err)
	}
	l.keepSpare(j, c.spare)
	if err == nil || errors.Is(err, commit.ErrOccupied) || errors.Is(err, commit.ErrGone) { // the lease of the session or of the cooldown has ended
		return nil, nil
	}
	return nil, l.endError(sent, asked, err)
}

// draft returns a claim that is not sent yet.
func (l *Locker) draft(e *engine.Epoch, p plan, r request) *claimed {
	at, lease := l.opts.Now().UnixMilli(), int64(e.Lease())
	before, _ := record.DecodeRun([]byte(p.before))
	return &claimed{epoch: e, tick: p.tick, attempt: p.attempt, before: p.before, sent: time.Now(),
		record: record.Run{State: record.RunRunning, Attempt: p.attempt, Owner: l.sess.Owner(), Lease: lease, StartMS: at, Request: cmp.Or(r.asked.id, before.Request), Earlier: before.Again()},
		lock:   record.Lock{Nonce: l.sess.Nonce(), Lease: lease, Tick: stamp(p.tick), Attempt: p.attempt, Owner: l.sess.Owner(), AtMS: at},
	}
}

// creation returns the Txn of a claim. It takes effect if the tick is not claimed, or its previous
// attempt is as it was read; if no later tick is claimed; and if the job does not run, cool down or
// pause.
func (l *Locker) creation(j *job, c *claimed, p plan, r request) commit.Creation {
	run := j.keys.Run(c.tick)
	// The tick's own record counts in any case: the clock may have been set back.
	horizon := max(j.keys.Run(l.horizon()), run+"\x00")
	ifs := []clientv3.Cmp{
		none(j.keys.Floor(c.tick), clientv3.GetPrefixRangeEnd(j.keys.Floors())),
		clientv3.Compare(clientv3.CreateRevision(j.keys.Cooldown()), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(j.keys.Pause()), "=", 0),
	}
	also := []clientv3.Op{clientv3.OpPut(run, c.record.Encode())}
	if p.attempt == 1 {
		ifs = append(ifs, none(j.keys.Run(r.since(c.tick)), horizon))
	} else {
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(run), "=", p.mod), none(run+"\x00", horizon))
	}
	settled := clientv3.Compare(clientv3.Value(j.keys.Settings()), "=", p.settings)
	if p.settings == "" {
		settled = clientv3.Compare(clientv3.CreateRevision(j.keys.Settings()), "=", 0)
	}
	ifs = append(ifs, settled)
	both, ok := agree(r.shared(), p.settings)
	if !ok {
		both = r.shared() // replaces what this process has stored before
	}
	if both != p.settings {
		also = append(also, clientv3.OpPut(j.keys.Settings(), both, clientv3.WithLease(c.epoch.Lease())))
	}
	if r.asked.mod != 0 && p.attempt == 1 { // one claim uses the request up
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(j.keys.RequestedRun()), "=", r.asked.mod))
		also = append(also, clientv3.OpDelete(j.keys.RequestedRun()))
	}
	if r.times != nil && r.times.print() != "" {
		also = append(also, clientv3.OpPut(j.keys.Plan(), r.plan(c).Encode()))
	}
	if c.spare != 0 {
		also = append(also, clientv3.OpPut(j.keys.Cooldown(), c.lock.Encode(), clientv3.WithLease(c.spare)))
	}
	first, _ := j.remaining(c.tick)
	return commit.Creation{
		Key: j.keys.Lock(), Value: c.lock.Encode(), If: ifs, Also: also,
		Mine: func(v []byte) bool {
			r, ok := record.DecodeLock(v)
			return ok && r.Nonce == c.lock.Nonce && r.Lease == c.lock.Lease
		},
		Read: []clientv3.Op{clientv3.OpGet(first, clientv3.WithRange(horizon), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(l.opts.Keep)+1))},
	}
}

// discard undoes, in the background, a claim whose outcome is unknown, and restores the record of the
// previous attempt if there was one.
func (l *Locker) discard(j *job, c *claimed, pending *commit.PendingError) {
	run := j.keys.Run(c.tick)
	undo, back := []string{j.keys.Cooldown()}, []clientv3.Op(nil)
	if c.before != "" {
		back = append(back, clientv3.OpPut(run, c.before))
	} else {
		undo = append(undo, run)
	}
	if !l.sess.Background(func() {
		_ = pending.DiscardWith(c.epoch.Context(), back, undo...)
		l.revoke(c.spare) // if the session was lost, the cooldown may still be written
	}) {
		pending.Abandon()
		l.revoke(c.spare)
	}
}
