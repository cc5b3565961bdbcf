package concurrency

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/queue"
)

const (
	// defaultMaxKeys is far above the keys that a service has in use at once, and far below what
	// harms etcd: 100,000 requests there take about 50 MB.
	defaultMaxKeys = 100_000
	// capShare is which part of the free keys one process may use on one count, and capLeast the
	// least number.
	capShare, capLeast = 64, 16
	// capAgain is how long a count that has found no free key is in force.
	capAgain = time.Second
	// capPage is how many names are read at once.
	capPage = 5000
)

// keyCap bounds how many keys of a limiter are live. It counts seldom: each count lets a part of the
// free keys in without another.
type keyCap struct {
	sess *engine.Session
	keys keyspace.Limiter
	most int64
	room atomic.Int64  // how many requests need no count
	sent atomic.Int64  // calls that were admitted, and whose requests a count may not show yet
	turn chan struct{} // taken by the call that counts

	fullAt time.Time // when a count found no free key; only with turn
}

func newKeyCap(sess *engine.Session, keys keyspace.Limiter, most int) *keyCap {
	return &keyCap{sess: sess, keys: keys, most: int64(most), turn: make(chan struct{}, 1)}
}

// admits reports whether a request may be written without a count. If so, landed is to be called.
func (k *keyCap) admits() bool {
	k.sent.Add(1) // first: a count that begins now must know of it
	if k.room.Add(-1) >= 0 {
		return true
	}
	k.sent.Add(-1)
	return false
}

// entry is one call's admission by a keyCap.
type entry struct {
	cap      *keyCap
	admitted bool
}

// landed ends the time in which a count may not show the request: it was written, or it failed.
func (e *entry) landed() {
	if e != nil && e.admitted {
		e.admitted = false
		e.cap.sent.Add(-1)
	}
}

// enter counts, and returns an error if no key is free and the queue's own is not live.
func (e *entry) enter(ctx context.Context, q *queue.Queue, begun time.Time) (err error) {
	k := e.cap
	if e.admitted, err = k.free(ctx); err != nil || e.admitted {
		return err
	}
	leave, err := q.Turn(ctx, &k.sess.Sending, begun)
	if err != nil {
		return err
	}
	defer leave()
	resp, err := k.sess.Read(ctx, q.Keys.Range, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count > 0 {
		return err
	}
	return tooManyKeys{fmt.Errorf("the limiter has %d live keys, as many as KeyedLimiterOptions.MaxKeys allows", k.most)}
}

// tooManyKeys is an ErrTooMany whose text is not that of a session.
type tooManyKeys struct{ error }

func (tooManyKeys) Is(target error) bool { return target == engine.ErrTooMany }

// free reports whether a key is free for this call, as of a count by this one or another.
func (k *keyCap) free(ctx context.Context) (bool, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	switch {
	case k.admits(): // another call has counted meanwhile
		return true, nil
	case time.Since(k.fullAt) < capAgain:
		return false, nil
	}
	var pause commit.Backoff
	for {
		sent := k.sent.Load() // before the count: what has landed by now is in it
		live, err := k.count(ctx)
		if err != nil {
			return false, err
		}
		if live >= k.most {
			k.fullAt = time.Now()
			return false, nil
		}
		if free := k.most - live - sent; free > 0 {
			k.sent.Add(1)
			k.room.Store(min(free, max(free/capShare, capLeast)) - 1)
			return true, nil
		}
		if err := pause.Wait(ctx, nil); err != nil { // for the requests that were sent
			return false, err
		}
	}
}

// count returns how many keys are live, or at least MaxKeys. There are no more keys than requests
// and limits, and these etcd counts at once. Only if they are too many, their names are read.
func (k *keyCap) count(ctx context.Context) (live int64, err error) {
	resp, err := k.sess.Read(ctx, k.keys.Keys(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	if resp.Count < k.most {
		return resp.Count, nil
	}
	last := ""
	for kv, err := range engine.Pages(ctx, k.sess, k.keys.Keys(), capPage, clientv3.WithKeysOnly()) {
		if err != nil {
			return 0, err
		}
		if key, ok := k.keys.ParseKey(string(kv.Key)); ok && key != last {
			last = key
			if live++; live >= k.most {
				break
			}
		}
	}
	return live, nil
}
