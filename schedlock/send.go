package schedlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// horizon bounds the claims that stand in the way of a tick: those beyond are of a
// process whose clock is wrong.
func (l *Locker) horizon() time.Time { return l.opts.now().Add(l.opts.MaxSkew + smallest) }

func none(first, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(first).WithRange(end), "=", 0)
}

// write sends the claim. It returns nil and no error if there is something in the way.
func (l *Locker) write(ctx, sent context.Context, j *job, p plan, r request) (got *claimed, err error) {
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

	c := l.draft(e, p)
	c.leave = leave
	if r.atLeast > 0 {
		if c.spare, err = l.spare(ctx, j, r.atLeast); err != nil {
			return nil, l.cut(ctx, asked, err)
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
func (l *Locker) draft(e *engine.Epoch, p plan) *claimed {
	at, lease := l.opts.now().UnixMilli(), int64(e.Lease())
	return &claimed{epoch: e, tick: p.tick, attempt: p.attempt, before: p.before, sent: time.Now(),
		record: record.Run{State: record.RunRunning, Attempt: p.attempt, Holder: l.sess.Holder(), Lease: lease, StartMS: at},
		lock:   record.Lock{Nonce: l.sess.Nonce(), Lease: lease, Tick: stamp(p.tick), Attempt: p.attempt, Holder: l.sess.Holder(), AtMS: at},
	}
}

// creation returns the Txn of a claim. It takes effect if the tick was not claimed, or if its
// attempt before is as it was read; if no later tick was; and if nothing holds the job back.
func (l *Locker) creation(j *job, c *claimed, p plan, r request) commit.Creation {
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
	both, ok := agree(r.shared(), p.settings)
	if !ok {
		both = r.shared() // what this process has stored before
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
