package commit

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// again commits a Txn until etcd has answered it. It repeats after errors of the classes busy
// and unanswered. It returns all other errors as they are. When ctx ends, it returns ctx's
// error, joined with the last one.
//
// doubt reports whether an earlier call may have been applied, or may still be. If doubt is
// true, an earlier copy can be the reason why the conditions are not met.
func again(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (resp *clientv3.TxnResponse, doubt bool, err error) {
	return Together{}.again(ctx, kv, cmps, then, otherwise)
}

// again is again, the first time by the group. It repeats after errors of the classes in also as well.
func (t Together) again(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, otherwise []clientv3.Op, also ...class) (resp *clientv3.TxnResponse, doubt bool, err error) {
	var pause Backoff
	for {
		resp, err := t.txn(ctx, kv, cmps, then, otherwise)
		t = Together{}
		if err == nil {
			return resp, doubt, nil
		}
		c := classify(err)
		doubt = doubt || c == unanswered || c == answered
		if c != busy && c != unanswered && !slices.Contains(also, c) {
			return nil, doubt, err
		}
		if shared(err) {
			continue
		}
		if err := pause.Wait(ctx, err); err != nil {
			return nil, doubt, err
		}
	}
}

// Allowed calls write until etcd no longer denies it, and returns what it has returned last. A denial says
// nothing of what was written: an operator may take it back. It ends as well when ctx does, or when trusted
// returns false: the lease of the writer is no longer trusted.
func Allowed(ctx context.Context, trusted func() bool, write func() error) error {
	return AllowedAfter(ctx, write(), trusted, write)
}

// AllowedAfter is Allowed after a first call of write, which has returned err.
func AllowedAfter(ctx context.Context, err error, trusted func() bool, write func() error) error {
	pause := Backoff{Least: 100 * time.Millisecond, Most: time.Second}
	for Denied(err) && trusted() && pause.Wait(ctx, nil) == nil {
		err = write()
	}
	return err
}

// Read calls read until it succeeds or fails with an error that is not Transient. read may be sent
// twice without harm; its ctx bounds one call. When ctx ends, Read returns ctx's error, joined
// with the last one.
func Read[T any](ctx context.Context, read func(call context.Context) (T, error)) (T, error) {
	var pause Backoff
	for {
		call, cancel := Call(ctx)
		found, err := read(call)
		cancel()
		if err == nil {
			return found, nil
		}
		var none T
		if !Transient(err) {
			return none, err
		}
		if err := pause.Wait(ctx, err); err != nil {
			return none, err
		}
	}
}
