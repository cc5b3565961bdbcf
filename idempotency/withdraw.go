package idempotency

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// What is left of a claim whose function was not called.

// withdrawals are those that the Stores of a session have under way in the background. It is safe for concurrent use.
type withdrawals struct {
	sess *engine.Session
	all  sync.Map // by the records of their claims: a channel that is closed at the end
}

// allWithdrawals are those of all sessions that are open.
var allWithdrawals sync.Map

// withdrawalsOf returns the withdrawals of a session. Two Stores of one name have them in common.
func withdrawalsOf(sess *engine.Session) *withdrawals {
	w, loaded := allWithdrawals.LoadOrStore(sess, &withdrawals{sess: sess})
	if !loaded {
		context.AfterFunc(sess.Context(), func() { allWithdrawals.Delete(sess) })
	}
	return w.(*withdrawals)
}

// run runs fn, which takes back the claim with that record, in the background, with a ctx that ends two seconds after the session
// has closed: a record that stayed would be that of a lost attempt. It returns false, and does nothing, if the session has closed.
func (w *withdrawals) run(text string, fn func(context.Context)) bool {
	undone := make(chan struct{})
	w.all.Store(text, undone)
	end := func() { w.all.Delete(text); close(undone) }
	ok := w.sess.Later(func(ctx context.Context) { defer end(); fn(ctx) })
	if !ok {
		end()
	}
	return ok
}

// of returns a channel that is closed when the claim with the record in st was taken back, or nil if that is not under way.
func (w *withdrawals) of(st state) <-chan struct{} {
	if undone, ok := w.all.Load(string(st.kv.Value)); ok {
		return undone.(chan struct{})
	}
	return nil
}

// withdrawal restores the record of a request as it was before a claim.
type withdrawal struct {
	reader *reader
	entry  keyspace.Entry
	text   string // the record of the claim; its nonce is unique
	before state
}

// repeat repeats a try until it succeeds, also while etcd refuses it, for lack of space for example. It returns an error
// only if ctx has ended.
func (w withdrawal) repeat(ctx context.Context, try func(context.Context) error) error {
	pause := commit.Backoff{Most: 5 * time.Second}
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// try restores the record if that of the claim is still in place. No copy of the claim may be in flight any
// more.
func (w withdrawal) try(ctx context.Context) error {
	kv, before := w.reader.sess.KV(), w.before.kv
	kvs, err := w.reader.sess.Get(ctx, w.entry.Record)
	if err != nil || len(kvs) == 0 || string(kvs[0].Value) != w.text {
		return err
	}
	nothing := []clientv3.Op{clientv3.OpDelete(w.entry.Record)}
	am := commit.Amendment{Key: w.entry.Record, Mod: kvs[0].ModRevision, Then: nothing, Mine: func(kv *mvccpb.KeyValue) bool {
		return kv == nil || before != nil && string(kv.Value) == string(before.Value)
	}}
	if before != nil {
		am.Then = []clientv3.Op{clientv3.OpPut(w.entry.Record, string(before.Value), clientv3.WithLease(clientv3.LeaseID(before.Lease)))}
		res, err := commit.Amend(ctx, kv, am)
		if err != nil || res.Outcome != commit.LeaseGone {
			return err
		}
		am.Then = nothing // it would have expired
	}
	_, err = commit.Amend(ctx, kv, am)
	return err
}
