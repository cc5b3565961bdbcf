package schedlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

func none(first, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(first).WithRange(end), "=", 0)
}

// write sends a claim. It returns nil and no error if the claim has no effect.
func (k *claim) write(ctx, sent context.Context, p plan) (got *claimed, err error) {
	asked := time.Now()
	e, err := k.sess.Live(ctx)
	if err != nil {
		return nil, k.endError(ctx, asked, err)
	}
	// Once a claim is sent, other processes may have received its event and skip the tick. So Close waits
	// for the claim and for its run: withdrawing it would lose the tick.
	leave, ok := e.Enter(ctx, k.job.name)
	if !ok {
		return nil, nil
	}
	waited := false // for, by Close, until the run has ended or what is left of the claim is removed
	defer func() {
		if !waited {
			leave()
		}
	}()
	sent, cancel := context.WithCancelCause(sent)
	defer cancel(nil)
	defer context.AfterFunc(k.sess.Context(), func() { cancel(endedBy{ErrClosed}) })()

	c := k.draft(e, p)
	c.leave = leave
	if k.atLeast > 0 {
		if c.spare, err = k.job.cooldown.spare(ctx, k.atLeast); err != nil {
			return nil, k.endError(ctx, asked, err)
		}
	}
	creation := k.creation(c, p)
	asked = time.Now() // the schedule is the caller's, and may have taken long
	created, err := e.Fence().Create(sent, creation)
	if err == nil && created.Token != 0 {
		c.token = created.Token
		c.planned = k.planBefore(c, created.Also)
		c.removable(k.job, created.Read)
		afterClaim(k.Locker, k.job, c, p.mod)
		warnOfNoTick(k, c)
		waited = true
		return c, nil
	}
	if err == nil || errors.Is(err, commit.ErrOccupied) {
		k.job.cooldown.keep(c.spare)
		return nil, nil
	}
	waited, err = k.unclaimed(ctx, sent, asked, c, err)
	return nil, err
}

// unclaimed takes the error of a claim that was sent, and returns that of the call, or nil if the claim has no effect. later reports
// that what is left of the claim is removed in the background.
func (k *claim) unclaimed(ctx, sent context.Context, asked time.Time, c *claimed, failed error) (later bool, err error) {
	if pending, ok := errors.AsType[*commit.PendingError](failed); ok {
		return k.discard(c, pending), k.endError(sent, asked, failed)
	}
	if !errors.Is(failed, commit.ErrGone) {
		k.job.cooldown.keep(c.spare)
		return false, k.endError(sent, asked, failed)
	}
	// The lease of the session or of the cooldown has ended. A copy that was not answered may have put the cooldown, of a run that
	// does not start.
	k.revoke(k.client.Ctx(), c.spare)
	taken, err := k.takeBack(ctx, c)
	if err != nil {
		_, later = k.remove(c, func(ctx context.Context) error {
			_, err := k.takeBack(ctx, c)
			return err
		})
		return later, k.endError(ctx, asked, err)
	}
	if taken {
		k.withdrawn, k.asked.mod = true, 0 // the request is used up
	}
	return false, nil
}

// draft returns a claim that is not sent yet.
func (k *claim) draft(e *engine.Epoch, p plan) *claimed {
	at, lease := k.job.stampOf(k.opts.Now().UnixMilli()), int64(e.Lease())
	before, _ := record.DecodeRun([]byte(p.before))
	return &claimed{epoch: e, tick: p.tick, attempt: p.attempt, before: p.before, sent: time.Now(), aged: k.outdated(),
		record: record.Run{State: record.RunRunning, Attempt: p.attempt, Owner: k.sess.Owner(), Lease: lease, StartMS: at, Request: cmp.Or(k.asked.id, before.Request), Earlier: before.Again()},
		lock:   record.Lock{Nonce: k.sess.Nonce(), Lease: lease, Tick: stamp(p.tick), Attempt: p.attempt, Owner: k.sess.Owner(), AtMS: at},
	}
}

// creation returns the Txn of a claim. It takes effect if the tick is not claimed, or its previous
// attempt is as it was read; if no later tick is claimed; and if the job does not run, cool down or
// pause.
func (k *claim) creation(c *claimed, p plan) commit.Creation {
	run := k.job.keys.Run(c.tick)
	// The tick's own record counts in any case: the clock may have been set back.
	horizon := max(k.job.keys.Run(k.horizon()), run+"\x00")
	ifs := []clientv3.Cmp{
		none(k.job.keys.Floor(c.tick), clientv3.GetPrefixRangeEnd(k.job.keys.Floors())),
		clientv3.Compare(clientv3.CreateRevision(k.job.keys.Cooldown()), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(k.job.keys.Pause()), "=", 0),
	}
	also := []clientv3.Op{clientv3.OpPut(run, c.record.Encode())}
	if p.attempt == 1 {
		ifs = append(ifs, none(k.job.keys.Run(k.since(c.tick)), horizon))
	} else {
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(run), "=", p.mod), none(run+"\x00", horizon))
	}
	settled := clientv3.Compare(clientv3.Value(k.job.keys.Settings()), "=", cmp.Or(p.value, record.Settings{Text: p.settings}.Encode()))
	if p.settings == "" {
		settled = clientv3.Compare(clientv3.CreateRevision(k.job.keys.Settings()), "=", 0)
	}
	ifs = append(ifs, settled)
	both, ok := agree(k.shared(), p.settings)
	if !ok {
		both = k.shared() // replaces what this process has stored before
	}
	if both != p.settings {
		also = append(also, clientv3.OpPut(k.job.keys.Settings(), record.Settings{Text: both}.Encode(), clientv3.WithLease(c.epoch.Lease())))
	}
	if k.asked.mod != 0 && p.attempt == 1 { // one claim uses the request up
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(k.job.keys.RequestedRun()), "=", k.asked.mod))
		also = append(also, clientv3.OpDelete(k.job.keys.RequestedRun()))
	}
	if k.times != nil && k.times.print() != "" {
		c.plan = k.plan(c).Encode()
		also = append(also, clientv3.OpTxn(isLater(k.job.keys.Plan()), nil, []clientv3.Op{clientv3.OpGet(k.job.keys.Plan()), clientv3.OpPut(k.job.keys.Plan(), c.plan)}))
	}
	if c.spare != 0 {
		also = append(also, clientv3.OpPut(k.job.keys.Cooldown(), c.lock.Encode(), clientv3.WithLease(c.spare)))
	}
	first, _ := k.job.remaining(c.tick)
	return commit.Creation{
		Key: k.job.keys.Lock(), Value: c.lock.Encode(), If: ifs, Also: also,
		Mine: func(v []byte) bool {
			r, ok := record.DecodeLock(v)
			return ok && r.Nonce == c.lock.Nonce && r.Lease == c.lock.Lease
		},
		Read: append([]clientv3.Op{clientv3.OpGet(first, clientv3.WithRange(horizon), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(k.opts.Keep)+1))}, readLost(k, c.aged, first, horizon)...),
	}
}

// isLater is the condition, for a Txn, that a later release has written the value of a key.
func isLater(key string) []clientv3.Cmp {
	from, end := record.LaterRange()
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), ">", from), clientv3.Compare(clientv3.Value(key), "<", end)}
}

// takeBack withdraws a claim of an earlier lease, whose function was not started, if etcd had applied it before the lease ended: its
// record has no lease, and is then all that is left. It uses the tick up, and looks like a lost run. No copy of the claim can be
// applied any more, since its compares name the presence key of that lease. taken reports whether there was such a record.
func (k *claim) takeBack(ctx context.Context, c *claimed) (taken bool, err error) {
	kvs, err := k.get(ctx, func() []clientv3.Op { return []clientv3.Op{clientv3.OpGet(k.job.keys.Run(c.tick))} })
	if err != nil || len(kvs[0]) == 0 || string(kvs[0][0].Value) != c.record.Encode() {
		return false, err
	}
	c.token = kvs[0][0].ModRevision
	return true, k.withdraw(ctx, c)
}

// remove repeats, in the background, what removes a claim whose function is not called, until that is done or two seconds after the
// session has closed. Close waits for it: the record of the claim has no lease, and would use the tick up. But after a refusal, such
// as for want of space, which lasts until an operator acts, it does not. Remove of the job does: what comes late puts the plan again. ended is closed at the end. ok is false, and nothing is done, if the session has closed.
func (k *claim) remove(c *claimed, removal func(context.Context) error) (ended <-chan struct{}, ok bool) {
	done, end := k.starts.another(), make(chan struct{})
	ok = k.sess.Later(func(ctx context.Context) {
		defer c.leave()
		defer done()
		defer close(end)
		pause := commit.Backoff{Most: 5 * time.Second}
		for {
			if err := removal(ctx); err == nil || k.rest(ctx, c, &pause, err) != nil {
				break
			}
		}
		k.revoke(ctx, c.spare) // if the session was lost, the cooldown may still be written
	})
	if !ok {
		done()
	}
	return end, ok
}

// rest waits between two tries to remove a claim. If etcd has refused the first one, Close does not wait for the next.
func (k *claim) rest(ctx context.Context, c *claimed, pause *commit.Backoff, err error) error {
	if commit.Mendable(err) {
		defer context.AfterFunc(k.sess.Accepting(), c.leave)()
	}
	return pause.Wait(ctx, err)
}

// discard undoes, in the background, a claim whose outcome is unknown, and restores the record of the
// previous attempt if there was one. It returns false if the session has closed.
func (k *claim) discard(c *claimed, pending *commit.PendingError) bool {
	run := k.job.keys.Run(c.tick)
	undo, back := []string{k.job.keys.Cooldown()}, []clientv3.Op(nil)
	if c.before != "" {
		back = append(back, clientv3.OpPut(run, c.before))
	} else {
		undo = append(undo, run)
	}
	settled := false
	discarded, ok := k.remove(c, func(ctx context.Context) (err error) { // also after the end of the lease, which does not remove the record
		if !settled {
			err = pending.TryDiscard(ctx, back, undo...)
		}
		if settled = err == nil; settled {
			err = k.replan(ctx, c)
			_, left := k.takeBack(ctx, c)
			err = cmp.Or(err, left)
		}
		return err
	})
	if !ok {
		pending.Abandon()
		k.revoke(k.client.Ctx(), c.spare)
		return false
	}
	k.discarded = discarded
	return true
}

// withdraw undoes a claim whose function was not started, and restores the record of the previous
// attempt if there was one.
func (k *claim) withdraw(ctx context.Context, c *claimed) error {
	run := k.job.keys.Run(c.tick)
	undo := []clientv3.Op{clientv3.OpDelete(run)}
	if c.before != "" {
		undo[0] = clientv3.OpPut(run, c.before)
	}
	for _, key := range []string{k.job.keys.Lock(), k.job.keys.Cooldown()} {
		undo = append(undo, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", c.token)},
			[]clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	send := func(undo []clientv3.Op) error {
		_, err := repeat(ctx, k.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
			return k.kv.Txn(call).If(clientv3.Compare(clientv3.ModRevision(run), "=", c.token)).Then(undo...).Commit()
		})
		return err
	}
	again := k.replanned(c)
	err := send(append(slices.Clip(undo), again...))
	if len(again) == 0 || !errors.Is(err, rpctypes.ErrNoSpace) {
		return err
	}
	if err = send(undo); err == nil { // deletions pass
		err = k.replan(ctx, c)
	}
	return err
}

// planBefore returns what puts back the plan that a claim has replaced, by the answer to what was put with it. A plan whose start
// is due after the tick is that of another claim of the tick, which was taken back just before: the tick is due.
func (k *claim) planBefore(c *claimed, also []*etcdserverpb.ResponseOp) []clientv3.Op {
	for _, r := range also {
		within := r.GetResponseTxn()
		if within == nil || within.Succeeded { // or it is of a later release, and was not replaced
			continue
		}
		kvs := within.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return []clientv3.Op{clientv3.OpDelete(k.job.keys.Plan())}
		}
		if p, _ := record.DecodePlan(kvs[0].Value); c.attempt == 1 && p.DueMS > c.tick.UnixMilli() {
			if due := k.dueAgain(c); due != nil {
				return due
			}
		}
		return []clientv3.Op{clientv3.OpPut(k.job.keys.Plan(), string(kvs[0].Value))}
	}
	return nil
}

// dueAgain returns what puts the plan of a claim with its tick due again, or nil.
func (k *claim) dueAgain(c *claimed) []clientv3.Op {
	if due := k.times.dueAgain(c.plan, c.tick); due != "" {
		return []clientv3.Op{clientv3.OpPut(k.job.keys.Plan(), due)}
	}
	return nil
}

// replanned returns what takes back the plan of a claim whose function was not called, for a Txn: otherwise its tick would count as
// started, and nothing would show that it was not. If no answer has said what was stored before, the tick is due; before a further
// attempt, that of the first one stays, whose tick has come.
func (k *claim) replanned(c *claimed) []clientv3.Op {
	put := k.former(c)
	if put == nil {
		return nil
	}
	return []clientv3.Op{k.inPlaceOf(c, put...)}
}

// former returns what puts back the plan from before a claim, or nil.
func (k *claim) former(c *claimed) []clientv3.Op {
	if c.planned == nil && c.attempt == 1 {
		return k.dueAgain(c)
	}
	return c.planned
}

// inPlaceOf returns what changes the plan of a claim, for a Txn, if it is stored still.
func (k *claim) inPlaceOf(c *claimed, ops ...clientv3.Op) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(k.job.keys.Plan()), "=", c.plan)}, ops, nil)
}

// replan takes back the plan of a claim alone. While etcd is out of space it removes the plan: that says of a tick that it was
// started, and the next claim or a process that has the job stores another one. This process knows then what is due.
func (k *claim) replan(ctx context.Context, c *claimed) error {
	again := k.replanned(c)
	if again == nil {
		return nil
	}
	send := func(ops ...clientv3.Op) error {
		_, err := repeat(ctx, k.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
			return k.kv.Txn(call).Then(ops...).Commit()
		})
		return err
	}
	err := send(again...)
	if errors.Is(err, rpctypes.ErrNoSpace) { // deletions pass
		k.job.unplan(c.plan, k.former(c))
		err = send(k.inPlaceOf(c, clientv3.OpDelete(k.job.keys.Plan())))
	}
	return err
}
