package entry

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

const (
	// DefaultMaxKeys is far above the keys that a service has in use at once, and far below what
	// harms etcd: 100,000 requests there take about 50 MB.
	DefaultMaxKeys = 100_000
	// capShare is which part of the free keys one process may use on one count, and capLeast the
	// least number.
	capShare, capLeast = 64, 16
	// capAgain is how long a count that has found no free key is in force.
	capAgain = time.Second
	// capPage is how many names are read at once.
	capPage = 5000
)

// Keys bounds how many keys of a limiter are live. It counts seldom: each count lets a part of the
// free keys in without another.
type Keys struct {
	sess *engine.Session
	keys keyspace.Limiter
	most int64
	room atomic.Int64  // how many requests need no count
	sent atomic.Int64  // calls that were admitted, and whose requests a count may not show yet
	turn chan struct{} // taken by the call that counts

	fullAt time.Time // when a count found no free key; only with turn
}

// NewKeys returns the bound of a limiter on its keys.
func NewKeys(sess *engine.Session, keys keyspace.Limiter, most int) *Keys {
	return &Keys{sess: sess, keys: keys, most: int64(most), turn: make(chan struct{}, 1)}
}

// admits reports whether a request may be written without a count. If so, Entry.Landed is to be called.
func (k *Keys) admits() bool {
	k.sent.Add(1) // first: a count that begins now must know of it
	if k.room.Add(-1) >= 0 {
		return true
	}
	k.sent.Add(-1)
	return false
}

// TooManyKeys is a refusal because as many keys of the limiter are live as it may have.
type TooManyKeys struct{ Most int64 }

func (*TooManyKeys) Error() string { return "the limiter has too many live keys" }

// free reports whether a key is free for this call, as of a count by this one or another.
func (k *Keys) free(ctx context.Context) (bool, error) {
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
func (k *Keys) count(ctx context.Context) (live int64, err error) {
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
