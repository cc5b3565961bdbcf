package middleware

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// The bounds of Retry-After, before up to a quarter is added at random so that clients that were
// refused together do not come back together.
const (
	soonest = time.Second
	latest  = 48 * time.Second // 60 s with the quarter
)

// mostGroups is how many groups of clients are distinguished; the groups beyond it share one.
const mostGroups = 4096

// group are clients that are refused for the same reason.
type group struct {
	why Reason
	key string
}

// retries says when refused clients should come back. It remembers those that were sent away: they
// are in no queue, and will come besides it.
type retries struct {
	mu     sync.Mutex
	groups map[group]*refused
	swept  time.Time
}

// refused is what is known of a group.
type refused struct {
	next time.Time // when the last of the clients that were sent away is expected

	// Without an estimate: as Kubernetes' tracker of dropped requests, after doubles while more than
	// three requests a second are refused, and falls while less than one is.
	after time.Duration
	since time.Time // of count
	count int
}

// longest is the greatest value without an estimate.
const longest = 32 * time.Second

// after returns when a client that is refused now should come back. Estimate is how long the queue
// takes to reach a new request, behind waiting others; 0 if it is unknown.
func (r *retries) after(g group, estimate time.Duration, waiting int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(g, now)
	if estimate > 0 {
		turn := estimate / time.Duration(waiting+1)
		at := now.Add(min(estimate, latest))
		if behind := e.next.Add(turn); behind.After(at) {
			at = behind
		}
		if most := now.Add(latest); at.After(most) {
			at = most
		}
		e.next = at
		return jittered(at.Sub(now))
	}
	return jittered(e.dropped(now))
}

// dropped counts a refusal and returns when to come back without an estimate.
func (e *refused) dropped(now time.Time) time.Duration {
	e.after = max(e.after, soonest)
	if passed := now.Sub(e.since); passed >= e.after {
		switch seconds := passed.Seconds(); {
		case e.since.IsZero():
		case float64(e.count) >= 3*seconds:
			e.after = min(2*e.after, longest)
		case float64(e.count) < seconds:
			e.after = max(e.after-passed.Truncate(time.Second), soonest)
		}
		e.since, e.count = now, 0
	}
	e.count++
	return e.after
}

// find returns what is known of a group.
func (r *retries) find(g group, now time.Time) *refused {
	if e := r.groups[g]; e != nil {
		return e
	}
	if len(r.groups) >= mostGroups {
		r.sweep(now)
		if len(r.groups) >= mostGroups {
			g.key = ""
		}
	}
	e := r.groups[g]
	if e == nil {
		if r.groups == nil {
			r.groups = map[group]*refused{}
		}
		e = &refused{}
		r.groups[g] = e
	}
	return e
}

// sweep forgets the groups of which no client is expected any more. It looks once a second.
func (r *retries) sweep(now time.Time) {
	if now.Sub(r.swept) < time.Second {
		return
	}
	r.swept = now
	maps.DeleteFunc(r.groups, func(_ group, e *refused) bool {
		return now.After(e.next) && now.Sub(e.since) > 2*longest
	})
}

func jittered(d time.Duration) time.Duration {
	d = min(max(d, soonest), latest)
	return d + rand.N(d/4+1)
}

// Seconds returns d in whole seconds, rounded up or down at random so that its mean is d, from 1 to
// 60.
func Seconds(d time.Duration) int64 {
	return min(max(int64((d+rand.N(time.Second))/time.Second), 1), 60)
}
