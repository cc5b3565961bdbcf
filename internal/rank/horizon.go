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

	Close int64 // how many requests should be left before one that begins to follow, about: see Learn

	Large int64 // from this limit on, Crowded may be true
	Crowd int64 // of so many requests for each own one
	Parts int   // into how many parts of the queue a sample is divided
	Every int64 // of so many requests a sample has one; 0 is for no samples

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
	StoredLimit = Horizon{Limits: 2, Least: 8, Most: 64, Close: 4, Large: 32, Crowd: 32, Parts: 8, Every: 16, Watched: 4, Gone: 2, Look: time.Second, Renew: renew}
	FixedLimit  = Horizon{Limits: 2, Least: 4, Most: 64, Close: 4, Large: 32, Crowd: 32, Watched: 4, Gone: 2, Look: time.Second, Renew: renew}
)

// window returns the weight before a request below which it is near.
func (h Horizon) window(limit int64) int64 {
	return max(0, h.Limits*limit+h.reserve(limit))
}

// reserve returns the part of the window that is for what comes while a request becomes near (W8).
func (h Horizon) reserve(limit int64) int64 { return min(max(h.Least, limit), h.Most) }

// Saving returns the horizon with a reserve that is smaller by so many requests.
func (h Horizon) Saving(saved, limit int64) Horizon {
	h.Least = h.reserve(limit) - saved
	h.Most = h.Least
	return h
}

// Learn returns by how many requests the reserve may be smaller, after a request has begun to follow with so many
// left before it that had to go. It was so many less for that one. If a permit was free by then, half of them come
// back.
func (h Horizon) Learn(saved, left, limit int64) int64 {
	switch {
	case left < 0:
		saved /= 2
	case left < h.Close/2:
		saved--
	case left > h.Close:
		saved += (left - h.Close + 3) / 4
	}
	return max(0, min(saved, h.reserve(limit)-h.Close/2))
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

// Sampling returns the horizon of a request that a sample wakes. A mass release is seen by the sample (W7), so the
// window has the requests that hold and the reserve.
func (h Horizon) Sampling(limit int64) Horizon {
	h.Limits, h.Close = 1, max(h.Close, limit/2)
	return h
}

// Deletions returns after how many deletions in the queue a request begins to follow that has so many before it, and
// whether it is worth a sleep by a sample. A sample is rough, so a quarter of them is left out.
func (h Horizon) Deletions(ahead, limit int64) (until int64, far bool) {
	until = (ahead - h.window(limit)) * 3 / 4
	return until, until >= max(h.Every, 1)
}

// Sample returns the parts of a queue with these keys, in their order, whose deletions are a sample of all: as many
// parts as Parts, at even distances, so that the keys of one process or one host are in it as often as any others.
// from, in [0, 1), is where the first one is. Each part ends before to; weight is how many keys there are for
// each that is in a part.
func (h Horizon) Sample(keys []string, from float64) (parts []Part, weight int64) {
	n, count := len(keys), max(1, h.Parts)
	size := max(1, n/(count*int(max(h.Every, 1))))
	if n < count*size {
		count = n / size
	}
	for i := range count {
		first := i*n/count + int(from*float64(n/count-size+1))
		parts = append(parts, Part{keys[first], keys[first+size-1] + "\x00"})
	}
	if count > 0 {
		weight = int64(n / (count * size))
	}
	return parts, weight
}

// Part is a part of a queue, by keys: from the first one to before the second one.
type Part struct{ From, To string }

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

// TinySample is Tiny for limits of which requests sleep by a sample.
var TinySample = func() Horizon { h := Tiny; h.Parts, h.Every = 1, 1; return h }()
