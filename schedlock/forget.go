package schedlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// forgetFor is how long etcd keeps the floor of a job that was forgotten: late calls for its earlier
// ticks are refused for as long.
const forgetFor = 24 * time.Hour

func (o *operator) forget(ctx context.Context) error {
	ctx, cancel := o.untilClose(ctx)
	defer cancel()
	if j := o.used(o.keys.Range); j != nil && j.inUse() {
		return fmt.Errorf("%w by this process", ErrInUse)
	}
	old, err := o.remains(ctx)
	if err != nil {
		return err
	}
	if err := old.check(o.horizon()); err != nil {
		return err
	}
	lease, err := o.grant(ctx, forgetFor)
	if err != nil {
		return err
	}
	res, err := commit.Amend(ctx, o.kv, old.removal(o.keys, lease, rand.Text()))
	if err == nil && res.Outcome != commit.Amended {
		o.sess.Later(func(ctx context.Context) { o.revoke(ctx, lease) })
		return fmt.Errorf("%w: it has changed meanwhile", ErrInUse)
	}
	return joinEnd(ctx, err)
}

// inUse reports whether this process has the job's settings.
func (j *job) inUse() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.print != ""
}

// remains is what etcd has of a job, as of one revision.
type remains struct {
	revision                 int64
	lock, cooldown, settings []*mvccpb.KeyValue
	keys                     int64            // other than floors
	latest                   time.Time        // the tick of the latest record or floor
	floor                    *mvccpb.KeyValue // of that tick, or nil
	claimers                 []int64          // the leases of the sessions in the records
	user                     string           // the owner of a live process that has the job, or ""
	unread                   *mvccpb.KeyValue // a value of a later release, or nil
	alive                    map[int64]string // the owners of the processes that run jobs, by lease
}

func (o *operator) remains(ctx context.Context) (remains, error) {
	resp, err := repeat(ctx, o.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
		return o.kv.Txn(call).Then(clientv3.OpGet(o.keys.Range, clientv3.WithPrefix()), clientv3.OpGet(o.space.Clocks(), clientv3.WithPrefix()), clientv3.OpGet(o.space.Users(), clientv3.WithPrefix())).Commit()
	})
	if err != nil {
		return remains{}, err
	}
	old := remains{revision: resp.Header.Revision, latest: time.UnixMilli(0), alive: map[int64]string{}}
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		old.take(o.keys, kv)
	}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		r, _ := record.DecodeClock(kv.Value)
		old.alive[kv.Lease] = r.Owner
	}
	old.user = userOf(resp.Responses[2].GetResponseRange().Kvs, o.name)
	return old, nil
}

// take adds one key of the job.
func (r *remains) take(keys keyspace.Job, kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	if tick, ok := keys.ParseFloor(key); ok {
		if !tick.Before(r.latest) {
			r.latest, r.floor = tick, kv
		}
		return
	}
	r.keys++
	if later(kv) {
		r.unread = kv
	}
	switch key {
	case keys.Lock():
		r.lock = append(r.lock, kv)
	case keys.Cooldown():
		r.cooldown = append(r.cooldown, kv)
	case keys.Settings():
		r.settings = append(r.settings, kv)
	}
	if tick, ok := keys.ParseRun(key); ok {
		run, _ := record.DecodeRun(kv.Value)
		r.claimers = append(r.claimers, run.Lease)
		if tick.After(r.latest) {
			r.latest, r.floor = tick, nil
		}
	}
}

// check returns an error if the job must not be forgotten. A tick after the horizon has not come by any
// right clock: the floor would refuse all ticks before it.
func (r *remains) check(horizon time.Time) error {
	switch {
	case r.keys == 0:
		return ErrUnknownJob
	case len(r.lock) > 0:
		lock, _ := record.DecodeLock(r.lock[0].Value)
		return fmt.Errorf("%w: a run by %q is active", ErrInUse, lock.Owner)
	case len(r.cooldown) > 0:
		return fmt.Errorf("%w: it cools down (AtLeast; Unlock ends that)", ErrInUse)
	case len(r.settings) > 0:
		return fmt.Errorf("%w: a live process uses it", ErrInUse)
	case r.user != "":
		return fmt.Errorf("%w: %q has it (Locker.Job or gocronlock.Cron.Plan), and is alive", ErrInUse, r.user)
	case r.unread != nil:
		return fmt.Errorf("%w: whether a live process has it is not known: %w", ErrInUse, record.Why(string(r.unread.Key), r.unread.Value))
	case r.latest.After(horizon):
		return fmt.Errorf("%w: its tick %s has not come; a process with a wrong clock has claimed it", ErrInUse, stamp(r.latest))
	}
	for _, lease := range r.claimers {
		if owner, ok := r.alive[lease]; ok {
			return fmt.Errorf("%w: %q has run it, and is alive", ErrInUse, owner)
		}
	}
	return nil
}

// removal removes all keys of the job and puts the floor, if nothing of the job was put since.
func (r *remains) removal(keys keyspace.Job, lease clientv3.LeaseID, nonce string) commit.Amendment {
	floor, mod, value := keys.Floor(r.latest), int64(0), ""
	if r.floor != nil {
		mod, value = r.floor.ModRevision, string(r.floor.Value)
	}
	return commit.Amendment{
		Key: floor, Mod: mod,
		Mine: func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == nonce },
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(keys.Range).WithPrefix(), "<", r.revision+1)},
		Then: []clientv3.Op{
			clientv3.OpDelete(keys.Range, clientv3.WithRange(floor)),
			clientv3.OpDelete(floor+"\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(keys.Range))),
			clientv3.OpPut(floor, nonce, clientv3.WithLease(lease)),
		},
		Same: func() clientv3.Op { return clientv3.OpPut(floor, value, clientv3.WithIgnoreLease()) },
	}
}
