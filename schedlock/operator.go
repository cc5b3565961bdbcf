package schedlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// operator is one call of an operator's about a job.
type operator struct {
	*Locker
	name string
	keys keyspace.Job
}

func operatorOf(l *Locker, name string) *operator {
	return &operator{Locker: l, name: name, keys: l.space.Job(name)}
}

// operation is what an operator does to a job.
type operation int

const (
	pauses operation = iota + 1
	resumes
	aside // what says nothing about the ticks to come
)

// shows returns what a value shows of an operation whose answer was lost, and which was to replace the revision last. What
// another one has put aside says of which Pause or Resume it comes after: if of none since last, a Pause or Resume was not made.
// A Pause or Resume does not replace a request for a run, and does not show whether that was made: requested finds out.
func (k operation) shows(nonce string, last int64) func([]byte) commit.Found {
	return func(b []byte) commit.Found {
		r, ok := record.DecodeOperated(b)
		switch {
		case ok && r.Nonce == nonce:
			return commit.Mine
		case k == aside && r.Revision == 0 && r.AtMS != 0:
			return commit.NotMade
		case ok && k != aside && (r.AtMS == 0 || r.Revision != 0 && r.Revision <= last):
			return commit.NotMade
		}
		return commit.Another
	}
}

// operate makes a change after all changes that came before it, and once: a late copy of
// it finds that another has come since. change is given the time of the last Pause or Resume, of the fleet: of this one, if it is one.
func (o *operator) operate(ctx context.Context, kind operation, nonce string, change func(keyspace.Job, time.Time) clientv3.Op) error {
	ctx, cancel := o.untilClose(ctx)
	defer cancel()
	note := record.Operated{Nonce: nonce, By: engine.Author(ctx, o.sess)}
	for {
		kvs, err := o.get(ctx, func() []clientv3.Op {
			return []clientv3.Op{clientv3.OpGet(o.keys.Operated()), clientv3.OpGet(o.space.Clocks(), clientv3.WithPrefix()), clientv3.OpGet(o.keys.Pause(), clientv3.WithKeysOnly())}
		})
		if err == nil && kind == resumes && len(kvs[2]) == 0 {
			return nil // the ticks that were missed before are missed still
		}
		if err == nil {
			var last int64
			before := record.Operated{}
			if len(kvs[0]) > 0 {
				last = kvs[0][0].ModRevision
				var ok bool
				if before, ok = record.DecodeOperated(kvs[0][0].Value); !ok && later(kvs[0][0]) {
					return record.Why(string(kvs[0][0].Key), kvs[0][0].Value) // what it says of the ticks to come would be lost
				}
			}
			if note.AtMS, note.Revision = before.AtMS, before.Revision; kind != aside {
				note.AtMS, note.Revision = fleetTime(o.Locker, kvs[1]).UnixMilli(), 0
			} else if note.Revision == 0 {
				note.Revision = last // of the Pause or Resume before
			}
			_, _, err = commit.Swap(ctx, o.kv, o.keys.Operated(), last, note.Encode(), kind.shows(nonce, last), change(o.keys, record.Time(note.AtMS)))
		}
		if errors.Is(err, commit.ErrConflict) && kind == aside {
			err = o.requested(ctx, nonce)
		}
		if !errors.Is(err, commit.ErrConflict) {
			return joinEnd(ctx, err)
		}
	}
}

// requested returns nil if a request for a run is made although another operation has come since, and ErrConflict if not, as far
// as etcd shows: no copy of it can be made any more.
func (o *operator) requested(ctx context.Context, nonce string) error {
	kvs, err := o.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(o.keys.RequestedRun()), clientv3.OpGet(o.keys.Runs(), clientv3.WithPrefix())}
	})
	if err != nil {
		return err
	}
	for _, kv := range kvs[0] {
		if r, _ := record.DecodeRequestedRun(kv.Value); r.Nonce == nonce {
			return nil
		}
	}
	for _, kv := range kvs[1] {
		if r, _ := record.DecodeRun(kv.Value); r.Request == nonce {
			return nil
		}
	}
	return commit.ErrConflict
}

// known returns ErrUnknownJob for a job that is neither in etcd nor used here.
func (o *operator) known(ctx context.Context) error {
	if err := checkName(o.name); err != nil {
		return err
	}
	if o.used(o.keys.Range) != nil {
		return nil
	}
	_, err := recordsOf(o.Locker, o.name).status(ctx)
	return err
}

func (o *operator) unlock(ctx context.Context, reason string, u unlocking) error {
	ctx, cancel := o.untilClose(ctx)
	defer cancel()
	for {
		removal, err := o.unlockSeen(ctx, reason, u)
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
func (o *operator) unlockSeen(ctx context.Context, reason string, u unlocking) (commit.Removal, error) {
	kvs, err := o.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(o.keys.Lock()), clientv3.OpGet(o.keys.Cooldown()), recordsOf(o.Locker, o.name).any(), clientv3.OpGet(o.space.Clocks(), clientv3.WithPrefix())}
	})
	if err != nil {
		return commit.Absent, err
	}
	lock, cooldown := kvs[0], kvs[1]
	if o.used(o.keys.Range) == nil && !recordsOf(o.Locker, o.name).exists(kvs[2]) {
		return commit.Absent, ErrUnknownJob
	}
	switch {
	case len(lock) == 0 && len(cooldown) == 0:
		return commit.Absent, ErrNotRunning
	case u.only != nil && *u.only != 0 && len(lock) == 0:
		return commit.Absent, fmt.Errorf("%w: the run has ended, and the job cools down (AtLeast; OnlyRun(0) ends that)", ErrNotRunning)
	case u.only != nil && tokenOf(lock) != *u.only:
		return commit.Absent, join.Kind(ErrNotRunning, fmt.Errorf("the active run has the token %d, not %d (OnlyRun)", tokenOf(lock), *u.only))
	}
	at := fleetTime(o.Locker, kvs[3]) // ticks from before it are not missed
	if len(lock) == 0 {
		return o.endCooldown(ctx, cooldown[0].CreateRevision, at)
	}
	token := tokenOf(lock)
	// The run record was written with the lock. The tick is read from its key, not from the lock's
	// value, which may be damaged: the tick must not start again in any case.
	run, err := o.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(o.keys.Runs(), clientv3.WithPrefix(), clientv3.WithMinModRev(token), clientv3.WithMaxModRev(token))}
	})
	if err != nil {
		return commit.Absent, err
	}
	then := []clientv3.Op{clientv3.OpDelete(o.keys.Cooldown())} // if the run is active still
	for _, kv := range run[0] {
		rec, ok := record.DecodeRun(kv.Value)
		if !ok && later(kv) {
			return commit.Absent, record.Why(string(kv.Key), kv.Value)
		}
		rec.State, rec.Attempt = record.RunUnlocked, max(rec.Attempt, 1)
		rec.EndMS, rec.Error, rec.By = max(rec.StartMS, at.UnixMilli()), reason, engine.Author(ctx, o.sess)
		then = append(then, clientv3.OpPut(string(kv.Key), rec.Encode()))
	}
	removal, err := commit.RemoveWith(ctx, o.kv, o.keys.Lock(), token, then)
	if err == nil && removal == commit.Vanished {
		removal, err = o.unlocked(ctx, run[0])
	}
	return removal, joinEnd(ctx, err)
}

// endCooldown ends the cooldown of a run that has ended, or was lost, and records that with the run: ticks after that are not
// skipped. No claim has come since the one that began the cooldown, so its record alone has changed since.
func (o *operator) endCooldown(ctx context.Context, began int64, at time.Time) (commit.Removal, error) {
	run, err := o.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(o.keys.Runs(), clientv3.WithPrefix(), clientv3.WithMinModRev(began))}
	})
	if err != nil {
		return commit.Absent, err
	}
	var then []clientv3.Op
	for _, kv := range run[0] {
		rec, ok := record.DecodeRun(kv.Value)
		if !ok { // it is damaged, or of a later release
			continue
		}
		if rec.State == record.RunRunning {
			rec.Token = tokenAt(kv, rec)
		}
		rec.CooledMS = at.UnixMilli()
		then = append(then, clientv3.OpPut(string(kv.Key), rec.Encode()))
	}
	removal, err := commit.RemoveWith(ctx, o.kv, o.keys.Cooldown(), began, then)
	if errors.Is(err, rpctypes.ErrNoSpace) { // a deletion alone passes
		removal, err = commit.Remove(ctx, o.kv, o.keys.Cooldown(), began)
	}
	return removal, joinEnd(ctx, err)
}

// unlocked finds out, after a lost answer, whether Unlock has ended a run, or the run has ended by itself and keeps its cooldown:
// the record that was read with the lock shows it, if it exists still.
func (o *operator) unlocked(ctx context.Context, run []*mvccpb.KeyValue) (commit.Removal, error) {
	for _, was := range run {
		kvs, err := o.get(ctx, func() []clientv3.Op { return []clientv3.Op{clientv3.OpGet(string(was.Key))} })
		if err != nil {
			return commit.Vanished, err
		}
		for _, kv := range kvs[0] {
			if rec, _ := record.DecodeRun(kv.Value); rec.State != record.RunUnlocked {
				return commit.Absent, nil
			}
		}
	}
	return commit.Vanished, nil
}

// later reports whether a later release has written a value.
func later(kv *mvccpb.KeyValue) bool { return record.Later(kv.Value) > 0 }

// tokenAt returns the token of a run that is recorded as running: the revision of its claim.
func tokenAt(kv *mvccpb.KeyValue, r record.Run) int64 { return cmp.Or(r.Token, kv.ModRevision) }

// tokenOf returns the token of the run that has the lock, or 0.
func tokenOf(lock []*mvccpb.KeyValue) int64 {
	if len(lock) == 0 {
		return 0
	}
	return lock[0].CreateRevision
}
