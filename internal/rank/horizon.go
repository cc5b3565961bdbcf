package rank

import (
	"context"
	"slices"
	"time"
)

// Horizon decides which waiting requests follow the queue, or its front, because they may be admitted
// soon, and which sleep and watch only a few requests before them. It decides no admission: a request that is
// taken for far only looks later.
type Horizon struct {
	Limits int64 // the window is this many times the limit,
	Least  int64 // and beyond that the limit once more, but at least this
	Most   int64 // and at most this

	Large int64 // from this limit on, Crowded may be true
	Crowd int64 // of so many requests for each own one

	Watched int // how many requests a far one watches
	Gone    int // how many of them have to be gone before it looks

	Look  time.Duration // how often, at least, it looks whether it watches the right ones
	Renew time.Duration // how long its watches live, about
}

// renew is how long a watch without events lives. An older one would make etcd search its history after a
// lost connection (W13 in internal/proof/tested-failures.md).
const renew = 25 * time.Second

// The horizons of queues with a stored limit, and of those with a fixed one, whose grants need no
// confirmation.
var (
	StoredLimit = Horizon{Limits: 2, Least: 8, Most: 64, Large: 32, Crowd: 32, Watched: 4, Gone: 2, Look: time.Second, Renew: renew}
	FixedLimit  = Horizon{Limits: 2, Least: 4, Most: 64, Large: 32, Crowd: 32, Watched: 4, Gone: 2, Look: time.Second, Renew: renew}
)

// window returns the weight before a request below which it is near.
func (h Horizon) window(limit int64) int64 {
	return max(0, h.Limits*limit+min(max(h.Least, limit), h.Most))
}

// Distance returns how many requests are before one that is far, at least: the window, those that it
// watches, and such as use the whole limit before those. A request with fewer before it is near.
func (h Horizon) Distance(limit int64) int64 {
	return h.window(limit) + int64(h.Watched) + limit
}

// Stays reports whether a request that follows the queue continues to, given how many are before it. To
// begin costs a list, so a request that is only a little too far continues.
func (h Horizon) Stays(ahead int, limit int64) bool {
	return int64(ahead) < max(2*h.window(limit), h.Distance(limit), 1)
}

// Crowded reports whether a session whose requests are near follows only deletions in the front of the queue,
// given the limit, how many requests are in the queue and how many of those are its own. Each of
// its requests costs a list and a confirmation then, in place of two events for each request of the queue.
func (h Horizon) Crowded(limit int64, requests, own int) bool {
	return limit >= h.Large && int64(requests) >= h.Crowd*int64(own)
}

// Few returns the horizon of a request that has not looked in vain yet. At a limit of 1 requests go in
// their order, unless their callers give up, so it is enough to watch the first one beyond the window.
func (h Horizon) Few(limit int64) Horizon {
	if limit <= 1 {
		h.Watched, h.Gone = 1, 1
	}
	return h
}

// Watch returns the requests that a far request watches, or none if it is near. before are those
// before it, the youngest first; the oldest may be left out.
//
// The watched ones are the first beyond the window: if the requests go in their order, enough of them
// are gone when the request has become near. Before each there are requests that use the whole limit, so
// it waits as well. A request that holds for long may be one of the first in the queue, and to watch
// only such would be to sleep while others pass (W2).
func (h Horizon) Watch(before []Entry, limit int64) []Entry {
	window, weight, first := h.window(limit), int64(0), 0
	for ; first < len(before) && weight < window; first++ {
		weight += before[first].Weight
	}
	last := first + h.Watched
	if weight < window || last > len(before) {
		return nil
	}
	var older int64
	for _, e := range before[last:] {
		older += e.Weight
	}
	if older < limit {
		return nil
	}
	return slices.Clone(before[first:last])
}

type horizonKey struct{}

// WithHorizon returns a ctx by which a session is made whose queues have this horizon: for tests, in
// which few requests wait.
func WithHorizon(ctx context.Context, h Horizon) context.Context {
	return context.WithValue(ctx, horizonKey{}, h)
}

// HorizonOf returns the horizon that WithHorizon has set, if it has.
func HorizonOf(ctx context.Context) (h Horizon, ok bool) {
	h, ok = ctx.Value(horizonKey{}).(Horizon)
	return h, ok
}

// Tiny is the smallest horizon by which a request wakes in time, if all go in their order: it watches
// the one whose end admits it.
var Tiny = Horizon{Limits: 1, Least: -1, Most: -1, Large: 2, Crowd: 1, Watched: 1, Gone: 1, Look: time.Second, Renew: renew}
