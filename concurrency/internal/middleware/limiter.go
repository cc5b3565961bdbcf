package middleware

import (
	"reflect"

	"github.com/etcdkit/etcdkit/concurrency"
)

// custom is a Limiter of the caller's own, whose semaphores may be of no Limiter: each of them is one
// by itself then, so that a request's context has its permit.
type custom struct{ concurrency.Limiter }

func (c custom) Key(key string) *concurrency.Semaphore {
	return concurrency.Single(c.Limiter.Key(key)).Key(key)
}

// ours returns a Limiter whose permits are in the contexts of their requests.
func ours(lim concurrency.Limiter) concurrency.Limiter {
	switch reflect.TypeOf(lim) {
	case reflect.TypeFor[*concurrency.KeyedLimiter](), reflect.TypeOf(concurrency.Single(nil)), nil:
		return lim
	}
	return custom{lim}
}

// whole returns the semaphore of all keys of a Limiter together, or nil if it has none.
func whole(lim concurrency.Limiter) *concurrency.Semaphore {
	if l, ok := lim.(interface{ Total() *concurrency.Semaphore }); ok {
		return l.Total()
	}
	return nil
}

// ofAll reports whether the semaphore of a key is that of all keys, as in concurrency.Single. Its limit is the service's, and
// no quota of one client.
func ofAll(lim concurrency.Limiter, key string) bool {
	all := whole(lim)
	return all != nil && lim.Key(key) == all
}
