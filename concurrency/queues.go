package concurrency

import (
	"context"
	"fmt"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// QueueKind is the kind of a queue in etcd.
type QueueKind string

// The kinds of queue.
const (
	KindSemaphore QueueKind = "semaphore"
	KindLimiter   QueueKind = "limiter"
	KindMutex     QueueKind = "mutex"
	KindElection  QueueKind = "election"
	KindRate      QueueKind = "rate" // of a RateLimiter: its requests are shares
)

// QueueInfo is a semaphore, a limiter, a mutex, an election or a rate limiter that has something
// stored in etcd.
type QueueInfo struct {
	Kind   QueueKind
	Name   string
	Stored bool // whether a limit, or a rate, is stored; of limiters the default; never of mutexes and elections
	// Requests is how many requests hold or wait, of a limiter those of all keys. Foreign keys
	// whose names have the form of a request's are counted; Status distinguishes them.
	Requests int
}

// queuePage is how many keys Queues reads at once.
const queuePage = 500

// Queues yields the queues in the session's prefix and namespace: every semaphore and every limiter
// whose limit is stored, every mutex and election that has requests, and every rate limiter whose
// rate is stored. A mutex or an election without a request leaves nothing in etcd. They are sorted by
// kind and then by key. The keys of a limiter are one queue here; KeyedLimiter.Keys lists them.
//
// Queues reads keys without values, 500 at once, so a change during the loop may be seen or
// not. It yields ErrClosed, ctx's error or one of etcd's as its last pair.
func (s *Session) Queues(ctx context.Context) iter.Seq2[QueueInfo, error] {
	return func(yield func(QueueInfo, error) bool) {
		space := engine.Of(s).Space()
		of := func(kind keyspace.Kind, as QueueKind) listed {
			return listed{as, space.Queues(kind), func(key string) (name string, ok bool) { return space.ParseQueue(kind, key) },
				func(name string) (limit string, request func(string) bool) {
					q := space.Queue(kind, name)
					if limit = q.Limit; kind != keyspace.Semaphore && kind != keyspace.Rate {
						limit = ""
					}
					return limit, q.IsSlot
				}}
		}
		for _, k := range []listed{
			of(keyspace.Semaphore, KindSemaphore),
			{KindLimiter, space.Limiters(), space.ParseLimiter, func(name string) (string, func(string) bool) {
				l := space.Limiter(name)
				return l.Default, func(key string) bool {
					of, ok := l.ParseKey(key)
					return ok && l.Key(of).IsSlot(key)
				}
			}},
			of(keyspace.Mutex, KindMutex),
			of(keyspace.Election, KindElection),
			of(keyspace.Rate, KindRate),
		} {
			if !k.list(ctx, engine.Of(s), yield) {
				return
			}
		}
	}
}

// listed is one kind of queue, as Queues reads it.
type listed struct {
	kind QueueKind
	in   string                                                          // the range of all queues of the kind
	name func(key string) (name string, ok bool)                         // of the queue to which a key belongs
	of   func(name string) (limit string, request func(key string) bool) // the keys of a queue
}

// list yields the queues of one kind, and reports whether the caller wants more.
func (l listed) list(ctx context.Context, sess *engine.Session, yield func(QueueInfo, error) bool) bool {
	now := QueueInfo{Kind: l.kind}
	shown := func() bool { return now.Requests == 0 && !now.Stored || yield(now, nil) }
	limit, request := "", func(string) bool { return false }
	for kv, err := range engine.Pages(ctx, sess, l.in, queuePage, clientv3.WithKeysOnly()) {
		if err != nil {
			yield(QueueInfo{}, fmt.Errorf("queues in %q: %w", sess.Space().Root(), err))
			return false
		}
		key := string(kv.Key)
		name, ok := l.name(key)
		if !ok {
			continue // a foreign key
		}
		if name != now.Name {
			if !shown() {
				return false
			}
			now = QueueInfo{Kind: l.kind, Name: name}
			limit, request = l.of(name)
		}
		if request(key) {
			now.Requests++
		} else if key == limit {
			now.Stored = true
		}
	}
	return shown()
}

// KeyInfo is a key of a KeyedLimiter that has something stored in etcd.
type KeyInfo struct {
	Key    string
	Stored bool // whether it has a limit of its own, which SetLimit has stored and which is readable
	Limit  int  // that limit, if Stored
	// Unreadable is why such a limit that is stored cannot be read: it is of a later release, or damaged. It is nil otherwise.
	Unreadable error
	Requests   int // how many requests of the key hold or wait, at either level; see QueueInfo.Requests
}

// Keys yields the keys of the limiter that have a request, or a limit of their own. They are sorted
// by the form that they have in etcd. Operators need no limit of their program for it: a limiter made
// with AdoptLimit will do, with a total or without.
//
// Keys reads 500 of etcd's keys at once, so a change during the loop may be seen or not. It yields
// ErrClosed, ctx's error or one of etcd's as its last pair.
func (l *KeyedLimiter) Keys(ctx context.Context) iter.Seq2[KeyInfo, error] {
	return func(yield func(KeyInfo, error) bool) {
		now := KeyInfo{}
		shown := func() bool {
			return now.Requests == 0 && !now.Stored && now.Unreadable == nil || yield(now, nil)
		}
		var of keyspace.Queue
		for kv, err := range engine.Pages(ctx, l.sess, l.keys.Keys(), queuePage) {
			if err != nil {
				yield(KeyInfo{}, fmt.Errorf("keys of limiter %q: %w", l.limits.Name, err))
				return
			}
			name := string(kv.Key)
			key, ok := l.keys.ParseKey(name)
			if !ok {
				continue // a foreign key
			}
			if key != now.Key {
				if !shown() {
					return
				}
				now, of = KeyInfo{Key: key}, l.keys.Key(key)
			}
			switch own := mirror.ReadLimitRecord(kv); {
			case of.IsSlot(name):
				now.Requests++
			case name != of.Limit || own.Inherit:
			case own.Damaged:
				now.Unreadable = own.Why
			default:
				now.Stored, now.Limit = true, int(own.Limit.Limit)
			}
		}
		shown()
	}
}
