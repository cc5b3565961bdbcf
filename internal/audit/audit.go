// Package audit records in etcd what operators change, with their names, times and reasons, for other operators: a console each of its
// actions, the command those that have a reason. The records are bounded by their number and by a lease.
package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Bounds of the records.
const (
	kept   = 30 * 24 * time.Hour
	shared = time.Hour // for which one lease is used for new records
	most   = 1000
	slack  = 100 // more, until the oldest are deleted
	atOnce = 128 // operations that etcd takes in one Txn
	bound  = 2 * time.Second
)

// Trail records what is changed by a session. It is safe for concurrent use.
type Trail struct {
	sess *engine.Session
	log  *zap.Logger

	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time
}

// New returns the trail of a session. It sends nothing to etcd.
func New(sess *engine.Session, log *zap.Logger) *Trail { return &Trail{sess: sess, log: log} }

// Begin records that an action begins, and returns what records how it has ended, and what it has replaced, if that is not "".
// An action that cannot be recorded is made and logged nevertheless: it may be what ends an incident.
func (t *Trail) Begin(ctx context.Context, change record.Change, actor string) (ended func(replaced string, failed error)) {
	key := t.stamp(&change, actor)
	change.Open = true
	_ = t.store(ctx, key, change) // the outcome below is stored also if this was not
	return func(replaced string, failed error) {
		change.Open, change.Before = false, cmp.Or(replaced, change.Before)
		if failed != nil {
			change.Failed = failed.Error()
		}
		if err := t.store(ctx, key, change); err != nil {
			t.log.Warn("an action of the console could not be recorded in etcd", zap.String("action", change.Verb), zap.String("name", change.Name), zap.String("target", change.Target),
				zap.String("actor", actor), zap.String("failed", change.Failed), zap.Error(err))
			return
		}
		t.trim(ctx)
	}
}

// Add records a change that was made. It returns etcd's error, also if it takes too long to answer.
func (t *Trail) Add(ctx context.Context, change record.Change, actor string) error {
	key := t.stamp(&change, actor)
	if err := t.store(ctx, key, change); err != nil {
		return err
	}
	t.trim(ctx)
	return nil
}

// stamp adds the time and the author of a change, and returns its key.
func (t *Trail) stamp(change *record.Change, actor string) (key string) {
	change.AtMS, change.By = time.Now().UnixMilli(), actor
	return t.sess.Space().Change(change.AtMS, strings.ToLower(rand.Text()[:8]))
}

// store writes a record, on another lease if that of the last one has ended.
func (t *Trail) store(ctx context.Context, key string, change record.Change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	for again := true; ; again = false {
		lease, err := t.forNew(ctx)
		if err == nil {
			_, err = t.sess.KV().Put(ctx, key, change.Encode(), clientv3.WithLease(lease))
		}
		if !again || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		t.forget(lease)
	}
}

// forget has the next record take another lease than one that has ended.
func (t *Trail) forget(lease clientv3.LeaseID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == lease {
		t.until = time.Time{}
	}
}

// forNew returns the lease of new records.
func (t *Trail) forNew(ctx context.Context) (clientv3.LeaseID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) {
		return t.lease, nil
	}
	if lease, left := t.newest(ctx); left > 0 {
		t.lease, t.until = lease, time.Now().Add(left)
		return lease, nil
	}
	lease, _, err := engine.GrantLease(ctx, t.sess, kept)
	if err != nil {
		return 0, err
	}
	t.lease, t.until = lease, time.Now().Add(shared)
	return lease, nil
}

// newest returns the lease of the record that was written last, whichever process has written it, and for how long it is
// used for new ones: each command is a process of its own, and a lease lasts longer than the records that trim deletes. The
// order is etcd's: keys are in that of clocks, one of which may be wrong.
func (t *Trail) newest(ctx context.Context) (clientv3.LeaseID, time.Duration) {
	// With the value, although it is not needed: etcd 3.7 returns no lease without.
	resp, err := t.sess.Read(ctx, t.sess.Space().Changes(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil || len(resp.Kvs) == 0 || resp.Kvs[0].Lease == 0 {
		return 0, 0
	}
	lease := clientv3.LeaseID(resp.Kvs[0].Lease)
	ttl, err := t.sess.Etcd().Client.TimeToLive(ctx, lease)
	if err != nil {
		return 0, 0
	}
	return lease, time.Duration(ttl.TTL)*time.Second - (kept - shared)
}

// trim deletes records in etcd's order, if there are too many, and first those without a reason: a script that deletes
// thousands of requests does not push out why a limit was changed. The next action repeats it.
func (t *Trail) trim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	all := t.sess.Space().Changes()
	resp, err := t.sess.Read(ctx, all, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count <= most+slack {
		return
	}
	old, err := t.sess.Read(ctx, all, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return
	}
	var deletes []clientv3.Op
	for _, kv := range surplus(old.Kvs) {
		deletes = append(deletes, clientv3.OpDelete(string(kv.Key)))
	}
	_, _ = t.sess.KV().Txn(ctx).Then(deletes...).Commit()
}

// surplus returns which of all records, the oldest first, are deleted: the oldest without a reason, but no
// action under way, and then the oldest. One of a later release may have a reason.
func surplus(all []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	reason := func(kv *mvccpb.KeyValue) int {
		if c, _ := record.DecodeChange(kv.Value); c.Reason != "" || c.Open || record.Later(kv.Value) > 0 {
			return 1
		}
		return 0
	}
	first := slices.SortedStableFunc(slices.Values(all), func(a, b *mvccpb.KeyValue) int { return reason(a) - reason(b) })
	return first[:max(0, min(len(all)-most, atOnce))]
}
