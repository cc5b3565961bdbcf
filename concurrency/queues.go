package concurrency

import (
	"context"
	"fmt"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// QueueKind is the kind of a queue in etcd.
type QueueKind string

// The kinds of queue.
const (
	KindSemaphore QueueKind = "semaphore"
	KindMutex     QueueKind = "mutex"
	KindElection  QueueKind = "election"
	KindRate      QueueKind = "rate" // of a RateLimiter: its requests are shares
)

// QueueInfo is a semaphore, a mutex, an election or a rate limiter that has something stored in etcd.
type QueueInfo struct {
	Kind   QueueKind
	Name   string
	Stored bool // whether a limit, or a rate, is stored: of semaphores and rate limiters only
	// Requests is how many requests hold or wait. Foreign keys whose names have the form of
	// a request's are counted; Status distinguishes them.
	Requests int
}

// queuePage is how many keys Queues reads at once.
const queuePage = 500

// Queues yields the queues in the session's prefix and namespace: every semaphore whose limit
// is stored, every mutex and election that has requests, and every rate limiter whose rate is stored. A mutex or an election without a
// request leaves nothing in etcd. They are sorted by kind and then by key.
//
// Queues reads keys without values, 500 at once, so a change during the loop may be seen or
// not. It yields ErrClosed, ctx's error or one of etcd's as its last pair.
func (s *Session) Queues(ctx context.Context) iter.Seq2[QueueInfo, error] {
	return func(yield func(QueueInfo, error) bool) {
		for _, k := range []struct {
			in  keyspace.Kind
			out QueueKind
		}{{keyspace.Semaphore, KindSemaphore}, {keyspace.Mutex, KindMutex}, {keyspace.Election, KindElection}, {keyspace.Rate, KindRate}} {
			if !s.queuesOf(ctx, k.in, k.out, yield) {
				return
			}
		}
	}
}

// queuesOf yields the queues of one kind, and reports whether the caller wants more.
func (s *Session) queuesOf(ctx context.Context, kind keyspace.Kind, as QueueKind, yield func(QueueInfo, error) bool) bool {
	sess := engine.Of(s)
	from := sess.Space().Queues(kind)
	end := clientv3.GetPrefixRangeEnd(from)
	now := QueueInfo{Kind: as}
	shown := func() bool { return now.Requests == 0 && !now.Stored || yield(now, nil) }
	var keys keyspace.Queue
	for {
		var resp *clientv3.GetResponse
		err := sess.Do(ctx, func(ctx context.Context) (err error) {
			resp, err = sess.Read(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(queuePage), clientv3.WithKeysOnly())
			return err
		})
		if err != nil {
			yield(QueueInfo{}, fmt.Errorf("queues in %q: %w", sess.Space().Root(), err))
			return false
		}
		for _, kv := range resp.Kvs {
			key := string(kv.Key)
			name, ok := sess.Space().ParseQueue(kind, key)
			if !ok {
				continue // a foreign key
			}
			if name != now.Name {
				if !shown() {
					return false
				}
				now, keys = QueueInfo{Kind: as, Name: name}, sess.Space().Queue(kind, name)
			}
			if _, request := keys.ParseSlot(key); request {
				now.Requests++
			} else if key == keys.Limit {
				now.Stored = kind == keyspace.Semaphore || kind == keyspace.Rate
			}
		}
		if !resp.More {
			return shown()
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
