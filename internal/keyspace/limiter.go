package keyspace

import "strings"

// limiters is the range of all limiters below the root of a space.
const limiters = "limiter/"

// Limiter is the part of etcd that belongs to one limiter: a default limit, a queue for each key,
// and a queue for the total.
type Limiter struct {
	Range   string
	Default string // the key of the default limit
	ids     string
}

// Limiter returns the keys of a limiter. The name must have passed CheckName.
func (s Space) Limiter(name string) Limiter {
	tail := limiters + escape(name) + "/"
	return Limiter{Range: s.root + tail, Default: s.root + tail + "default", ids: s.root + "request-id/" + tail}
}

// Keys is the range of the queues of all keys.
func (l Limiter) Keys() string { return l.Range + "key/" }

// Limiters is the range of all limiters.
func (s Space) Limiters() string { return s.root + limiters }

// ParseLimiter returns the name of the limiter to whose range a key belongs.
func (s Space) ParseLimiter(key string) (name string, ok bool) {
	name, _, ok = split(key, s.Limiters())
	return name, ok && CheckName(name) == nil
}

// Key returns the keys of the queue of one key, which must have passed CheckID.
func (l Limiter) Key(key string) Queue { return l.queue("key/" + escape(key) + "/") }

// KeyRange is the Range of Key, at the cost of one text instead of all.
func (l Limiter) KeyRange(key string) string { return l.Range + "key/" + escape(key) + "/" }

// ParseKey returns the key of the limiter to whose queue a name in etcd belongs.
func (l Limiter) ParseKey(name string) (key string, ok bool) {
	key, _, ok = split(name, l.Keys())
	return key, ok && CheckID(key) == nil
}

// Total returns the keys of the queue of the total.
func (l Limiter) Total() Queue { return l.queue("total/") }

func (l Limiter) queue(tail string) Queue { return newQueue(l.Range, tail, l.ids+tail) }

// Members is the range of the keys of the sessions that share the limit of a queue while they
// cannot reach etcd. It is outside the queue's own range, which mirrors follow.
func (s Space) Members(q Queue) string {
	return s.root + "sharing/" + strings.TrimPrefix(q.Range, s.root)
}

// Member is the key of the session on a lease among them.
func (s Space) Member(q Queue, lease int64) string { return s.Members(q) + hex16(lease) }
