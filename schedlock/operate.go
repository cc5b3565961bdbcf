package schedlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// PauseOption configures a call of Pause.
type PauseOption func(*pausing)

type pausing struct{ anyName bool }

// BeforeFirstRun lets Pause accept a job of which nothing is in etcd, such as one before its first
// run. Without it Pause returns ErrUnknownJob, so that a misspelled name is noticed. Jobs lists a
// job that was paused from then on.
func BeforeFirstRun() PauseOption { return func(p *pausing) { p.anyName = true } }

// Pause keeps a job from starting, in the whole fleet, until Resume. An active run is not affected;
// ticks that come meanwhile are skipped. Pausing a paused job replaces the reason. Pause returns
// ErrInvalid if the name, the reason or an option is out of range, and ErrUnknownJob if nothing of
// the job is in etcd, this Locker has not used it, and BeforeFirstRun is not given. After
// ErrClosed, ctx's error or an error of etcd's the job may be paused or not.
func (l *Locker) Pause(ctx context.Context, name, reason string, opts ...PauseOption) error {
	var p pausing
	for i, o := range opts {
		if o == nil {
			return fmt.Errorf("pause job %q: %w", name, invalid("Option %d is nil", i+1))
		}
		o(&p)
	}
	value := record.Pause{By: l.sess.Owner(), Reason: reason, AtMS: l.opts.Now().UnixMilli()}.Encode()
	err := cmp.Or(engine.CheckReason(reason), checkName(name))
	if err == nil && !p.anyName {
		if err = l.known(ctx, name); errors.Is(err, ErrUnknownJob) {
			err = fmt.Errorf("%w (if the name is right, pass BeforeFirstRun)", err)
		}
	}
	if err == nil {
		err = l.operate(ctx, name, switched, func(k keyspace.Job) clientv3.Op { return clientv3.OpPut(k.Pause(), value) })
	}
	return l.about("pause", name, err)
}

// Resume lets a paused job start again, from its next tick on: OnMisfire(Once) starts no tick from
// before the call. That is a matter of etcd's order if the job has started since. Otherwise it is the time of the
// call by the clock of this process, kept within a minute of the clocks of the processes that run jobs; if it is
// not, a warning is logged. With none alive, it is not before the plan was stamped last, once a day. Resuming a job that is not paused is no error.
// Resume returns ErrInvalid if the name is out of range, and ErrUnknownJob if nothing of the job is
// in etcd and this Locker has not used it. After ErrClosed, ctx's error or an error of etcd's the
// job may be paused or not.
func (l *Locker) Resume(ctx context.Context, name string) error {
	err := l.known(ctx, name)
	if err == nil {
		err = l.operate(ctx, name, switched, func(k keyspace.Job) clientv3.Op { return clientv3.OpDelete(k.Pause()) })
	}
	return l.about("resume", name, err)
}

// operation is what an operator does to a job.
type operation int

const (
	switched operation = iota + 1 // Pause or Resume
	aside                         // what says nothing about the ticks to come
)

// operate makes a change after all changes that came before it, and once: a late copy of
// it finds that another has come since.
func (l *Locker) operate(ctx context.Context, name string, kind operation, change func(keyspace.Job) clientv3.Op) error {
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	keys := l.space.Job(name)
	note := record.Operated{Nonce: rand.Text(), By: l.sess.Owner()}
	mine := func(b []byte) bool { r, ok := record.DecodeOperated(b); return ok && r.Nonce == note.Nonce }
	for {
		kvs, err := l.get(ctx, func() []clientv3.Op {
			return []clientv3.Op{clientv3.OpGet(keys.Operated()), clientv3.OpGet(l.space.Clocks(), clientv3.WithPrefix())}
		})
		if err == nil {
			var last int64
			before := record.Operated{}
			if len(kvs[0]) > 0 {
				last = kvs[0][0].ModRevision
				before, _ = record.DecodeOperated(kvs[0][0].Value)
			}
			if note.AtMS, note.Revision = before.AtMS, before.Revision; kind == switched {
				note.AtMS, note.Revision = fleetTime(l, kvs[1]).UnixMilli(), 0
			} else if note.Revision == 0 {
				note.Revision = last // of the Pause or Resume before
			}
			_, _, err = commit.Swap(ctx, l.kv, keys.Operated(), last, note.Encode(), mine, change(keys))
		}
		if !errors.Is(err, commit.ErrConflict) {
			return joinEnd(ctx, err)
		}
	}
}

// known returns ErrUnknownJob for a job that is neither in etcd nor used here.
func (l *Locker) known(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if l.used(l.space.Job(name).Range) != nil {
		return nil
	}
	_, err := l.status(ctx, name)
	return err
}

// UnlockOption configures a call of Unlock.
type UnlockOption func(*unlocking)

type unlocking struct{ only *int64 }

// OnlyRun lets Unlock end only the run with this token, the one that the caller has looked at
// (Status.Token, Record.Token); with the token 0, only a cooldown. If another run is active by then,
// or none, Unlock returns ErrNotRunning and changes nothing.
func OnlyRun(token int64) UnlockOption { return func(u *unlocking) { u.only = &token } }

// Unlock ends the active run of a job by force, with a reason, and lets the job start again. The
// run's context ends with ErrUnlocked when its process receives the event, possibly after another
// run has started. Unlock ends a cooldown (AtLeast), too. The tick is not started again, whatever
// Retries allows. Which run is active can change between the look at it and the call: pass OnlyRun.
// Unlock returns ErrNotRunning if the job neither runs nor cools down, or if OnlyRun excludes what it
// does, ErrUnknownJob if nothing of the job is in etcd and this Locker has not used it, and ErrInvalid if the name, the reason or an option is out of range. After ErrClosed, ctx's
// error or an error of etcd's the run may be ended or not.
func (l *Locker) Unlock(ctx context.Context, name, reason string, opts ...UnlockOption) error {
	var u unlocking
	for i, o := range opts {
		if o == nil {
			return fmt.Errorf("unlock job %q: %w", name, invalid("Option %d is nil", i+1))
		}
		o(&u)
	}
	err := cmp.Or(engine.CheckReason(reason), checkName(name))
	if err == nil {
		err = l.unlock(ctx, name, reason, u)
	}
	return l.about("unlock", name, err)
}

func (l *Locker) unlock(ctx context.Context, name, reason string, u unlocking) error {
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	for {
		removal, err := l.unlockSeen(ctx, name, reason, u)
		switch {
		case err != nil:
			return err
		case removal != commit.Absent:
			return nil
		case u.only != nil:
			return ErrNotRunning
		}
		// The run has ended meanwhile, and may cool down, or another one is active.
	}
}

// unlockSeen removes the lock that it reads, with its cooldown, or a cooldown alone. It returns Absent if that is gone
// meanwhile.
func (l *Locker) unlockSeen(ctx context.Context, name, reason string, u unlocking) (commit.Removal, error) {
	keys := l.space.Job(name)
	kvs, err := l.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(keys.Lock()), clientv3.OpGet(keys.Cooldown()), (&job{keys: keys}).any()}
	})
	if err != nil {
		return commit.Absent, err
	}
	lock, cooldown := kvs[0], kvs[1]
	if l.used(keys.Range) == nil && !(&job{keys: keys}).exists(kvs[2]) {
		return commit.Absent, ErrUnknownJob
	}
	if len(lock) == 0 && len(cooldown) == 0 || u.only != nil && tokenOf(lock) != *u.only {
		return commit.Absent, ErrNotRunning
	}
	if len(lock) == 0 {
		removal, err := commit.Remove(ctx, l.kv, keys.Cooldown(), cooldown[0].CreateRevision)
		return removal, joinEnd(ctx, err)
	}
	token := tokenOf(lock)
	// The run record was written with the lock. The tick is read from its key, not from the lock's
	// value, which may be damaged: the tick must not start again in any case.
	run, err := l.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(keys.Runs(), clientv3.WithPrefix(), clientv3.WithMinModRev(token), clientv3.WithMaxModRev(token))}
	})
	if err != nil {
		return commit.Absent, err
	}
	then := []clientv3.Op{clientv3.OpDelete(keys.Cooldown())} // if the run is active still
	for _, kv := range run[0] {
		rec, _ := record.DecodeRun(kv.Value)
		rec.State, rec.Attempt = record.RunUnlocked, max(rec.Attempt, 1)
		rec.EndMS, rec.Error, rec.By = l.opts.Now().UnixMilli(), reason, l.sess.Owner()
		then = append(then, clientv3.OpPut(string(kv.Key), rec.Encode()))
	}
	removal, err := commit.RemoveWith(ctx, l.kv, keys.Lock(), token, then)
	return removal, joinEnd(ctx, err)
}

// tokenOf returns the token of the run that has the lock, or 0.
func tokenOf(lock []*mvccpb.KeyValue) int64 {
	if len(lock) == 0 {
		return 0
	}
	return lock[0].CreateRevision
}
