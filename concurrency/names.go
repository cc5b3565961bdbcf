package concurrency

import (
	"maps"
	"runtime"
	"sync"
	"weak"
)

// inUse has what a session shares under a name, as long as something else refers to it: a session of a process that uses
// ever new names stays small. The zero value is empty. Its caller holds the lock that is given to put.
type inUse[K comparable, V any] struct {
	of   map[K]weak.Pointer[V]
	most int // how many there have been since the map was made
}

// get returns what is in use under a name, or nil.
func (u *inUse[K, V]) get(as K) *V { return u.of[as].Value() }

// put adds what get has not returned, until nothing refers to it any more.
func (u *inUse[K, V]) put(mu *sync.Mutex, as K, v *V) {
	if u.of == nil {
		u.of = map[K]weak.Pointer[V]{}
	}
	u.of[as] = weak.Make(v)
	u.most = max(u.most, len(u.of))
	runtime.AddCleanup(v, func(as K) {
		mu.Lock()
		defer mu.Unlock()
		u.forget(as)
	}, as)
}

// forget removes a name under which nothing is in use.
func (u *inUse[K, V]) forget(as K) {
	if u.of[as].Value() == nil {
		delete(u.of, as)
	}
	if u.most > fewNames && len(u.of) < u.most/4 { // a map keeps the size that it has had, and so does its clone
		u.of, u.most = maps.Collect(maps.All(u.of)), len(u.of)
	}
}

// fewNames is up to how many it does not matter how large their map is.
const fewNames = 1000

// all yields what is in use.
func (u *inUse[K, V]) all(yield func(*V) bool) {
	for _, p := range u.of {
		if v := p.Value(); v != nil && !yield(v) {
			return
		}
	}
}
