package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// removals are the requests that a session was removing when a call first looked at its queue. The call is not refused because of
// them. Where counts decide, they are looked for by their keys: no queue is listed because of them.
type removals struct {
	leaving func() []engine.Leaving
}

func newRemovals(e *engine.Epoch, numbered string) *removals {
	return &removals{sync.OnceValue(func() []engine.Leaving { return e.Leaving(numbered) })}
}

// from returns those that may still be in one queue.
func (m *removals) from(q *Queue) (here []engine.Leaving) {
	for _, l := range m.leaving() {
		if !l.IsGone() && len(q.keysOf(l)) > 0 {
			here = append(here, l)
		}
	}
	return here
}

// rest waits as long as the pause says, or until all of them are gone.
func (m *removals) rest(ctx context.Context, pause *commit.Backoff) error {
	t := time.NewTimer(pause.Next())
	defer t.Stop()
	left := slices.DeleteFunc(slices.Clone(m.leaving()), engine.Leaving.IsGone)
	if len(left) == 0 {
		left = []engine.Leaving{{}} // whose Gone is never closed
	}
	for _, l := range left {
		select {
		case <-l.Gone:
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// keysOf returns the keys that a request may have in the queue.
func (r *Reader) keysOf(l engine.Leaving) (keys []string) {
	next := l.Next
	if l.Joined.Key != "" {
		next = []string{l.Joined.Key}
	}
	for _, key := range append([]string{l.Key}, next...) {
		if strings.HasPrefix(key, r.Keys.Range) {
			keys = append(keys, key)
		}
	}
	return keys
}

// names returns the keys that requests may have in the queue.
func (r *Reader) names(all []engine.Leaving) map[string]bool {
	names := map[string]bool{}
	for _, l := range all {
		for _, key := range r.keysOf(l) {
			names[key] = true
		}
	}
	return names
}

// tooFull reports whether a queue of light requests that was counted at a revision was too full for one more behind
// maxWaiters others also without those that were being removed. etcd is asked which of those it had only while that can
// change the answer.
func (r *Reader) tooFull(ctx context.Context, f *Full, removed []engine.Leaving, maxWaiters int, revision int64) (bool, error) {
	had := 0
	for {
		switch {
		case f.without(had+len(removed), maxWaiters): // whichever of the rest it had
			return true, nil
		case !f.without(had, maxWaiters):
			return false, nil
		}
		n := min(len(removed), provable)
		found, err := r.had(ctx, removed[:n], revision)
		if err != nil {
			return false, err
		}
		had, removed = had+found, removed[n:]
	}
}

// had returns how many of a few requests the queue had at a revision, or all if etcd has compacted that.
func (r *Reader) had(ctx context.Context, few []engine.Leaving, revision int64) (n int, _ error) {
	var looks []clientv3.Op
	var of []engine.Leaving
	for _, l := range few {
		for _, key := range r.keysOf(l) {
			looks = append(looks, clientv3.OpGet(key, clientv3.WithKeysOnly(), clientv3.WithRev(revision)))
			of = append(of, l)
		}
	}
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return r.KV.Txn(call).Then(looks...).Commit()
	})
	if errors.Is(err, rpctypes.ErrCompacted) {
		return len(few), nil
	}
	if err != nil {
		return 0, err
	}
	for i, found := range resp.Responses {
		// A slot may have been taken anew since. No request has two keys at the same time.
		if kvs := found.GetResponseRange().Kvs; len(kvs) > 0 && (of[i].Joined.Token == 0 || kvs[0].CreateRevision == of[i].Joined.Token) {
			n++
		}
	}
	return n, nil
}
