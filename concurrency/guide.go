package concurrency

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// guide decides when the waiting requests of a session follow their queue, as long as there are any. It
// decides no admission: if it is late or mistaken, a request waits longer.
type guide struct {
	*sessionQueue
	stop     func()  // ends the watches of the requests before the first
	first    *waiter // when it was last looked at
	tooEarly bool    // it has followed the queue, and was far again
	still    stillness
}

// followPause bounds the pause after a request has followed the queue in vain.
const followPause = 200 * time.Millisecond

func (g *guide) run() {
	ctx := g.sess.Context()
	defer g.distant.leave()
	defer func() { g.stop() }()
	g.distant.join()
	var failed commit.Backoff
	backoff := commit.Backoff{Most: followPause}
	for ctx.Err() == nil {
		s := g.waiters.next()
		if s == nil {
			return
		}
		g.distant.follow(g.sessionQueue, s.ownKeys())
		var near bool
		var err error
		if s != g.first {
			g.first, g.tooEarly, g.still = s, false, stillness{}
			backoff.Reset()
			near = !g.far(s)
		}
		if !near {
			near, err = g.isNear(ctx, s)
		}
		if err != nil {
			_ = failed.Wait(ctx, nil)
			continue
		}
		failed.Reset()
		if !near {
			continue
		}
		g.stop()
		g.stop = func() {}
		if g.tooEarly = g.near(ctx); g.tooEarly {
			_ = backoff.Wait(ctx, nil) // what the list has shown as near may be far for the view, again and again
		}
	}
}

// near has the requests follow the front of the queue until none is left, or the first is far. It returns
// true if g.first was far from the beginning.
func (g *guide) near(ctx context.Context) (tooEarly bool) {
	m := g.front.Join()
	defer m.Leave()
	renew := time.NewTicker(g.horizon.Renew)
	defer renew.Stop()
	for followed := false; ; {
		s, _ := g.waiters.ends()
		if s == nil {
			return false
		}
		g.distant.follow(g.sessionQueue, s.ownKeys())
		seen, changed := m.Seen()
		if seen >= s.Token {
			ahead, _ := m.Ahead(s.Key, s.Token) // for a request that is gone there is none
			if !g.horizon.Stays(ahead, g.limitSeen()) {
				g.waiters.become(asleep)
				return s == g.first && !followed
			}
			if m.Alone() && !g.deletionsAlone(2) { // the session has more requests by now
				g.front.Replace()
				m.Next()
				continue
			}
			g.waiters.become(front)
			followed = true
			changed = nil
		}
		select {
		case <-g.waiters.recheck:
		case <-changed:
		case <-g.distant.changed:
			m.ListAgain()
		case <-renew.C:
		case <-m.Replaced:
			m.Next()
		case <-ctx.Done():
			return false
		}
	}
}

const (
	// lookCrowd is up to how many requests a far one looks as often as its horizon says. In a
	// longer queue it looks less often, so that all together cost etcd no more.
	lookCrowd = 300
	// listEvery is at which of these looks it lists what is before it. The others only count.
	listEvery = 8
	// listCost is what a list costs etcd for each request in the queue, about.
	listCost = 2500 * time.Nanosecond
)

// isNear lists the requests before one, and waits until it is near. It returns false when they have to
// be listed again.
func (g *guide) isNear(ctx context.Context, s *waiter) (near bool, err error) {
	t, err := g.tail(ctx, s)
	if err != nil {
		return false, err
	}
	h := g.horizon
	if !g.tooEarly {
		h = h.Few(t.limit.N)
	}
	w := watching{waiter: s, left: h.Watch(t.before, t.limit.N), limit: t.limit.Revs, requests: t.requests, still: &g.still, enough: h.Watched - h.Gone, every: h.Look}
	w.still.see(t.requests)
	if t.near || w.left == nil {
		return true, nil
	}
	gone, closed := make(chan string, h.Watched), make(chan struct{}, 1)
	stop, err := g.sess.Source().Deletions(ctx, w.keys(), func(key string) {
		select {
		case gone <- key:
		default: // it was created and deleted again
		}
	}, func(error) { signal(closed) })
	if err != nil {
		return false, err
	}
	g.stop() // not before the others exist: the end of the last watch of a stream closes it (W14 in internal/proof/tested-failures.md)
	g.stop = stop
	renew := time.NewTimer(jitter(h.Renew))
	defer renew.Stop()
	for n := range listEvery {
		again, err := w.verify(ctx, g.sessionQueue, n > 0)
		if again || err != nil {
			return false, err
		}
		if next := g.sleepUntil(ctx, &w, gone, closed, renew.C); next != lookAgain {
			return next == isNear, ctx.Err()
		}
	}
	return false, nil
}

type afterSleep int

const (
	lookAgain afterSleep = iota
	listAgain
	isNear
)

// sleepUntil waits until there is something to do for a far request.
func (g *guide) sleepUntil(ctx context.Context, w *watching, gone <-chan string, closed <-chan struct{}, renew <-chan time.Time) afterSleep {
	look := time.NewTimer(jitter(w.period()))
	defer look.Stop()
	then := lookAgain
	for len(w.left) > w.enough {
		select {
		case key := <-gone:
			w.left = slices.DeleteFunc(w.left, func(e queue.Entry) bool { return e.Key == key })
			if w.still.end() {
				look.Reset(jitter(w.period()))
			}
		case <-look.C:
			return then
		case <-g.distant.changed:
			if !g.far(w.waiter) {
				return listAgain
			}
			look.Reset(rand.N(w.spread())) // all far requests of the queue have learned it at the same moment
		case <-closed:
			then = listAgain
			look.Reset(rand.N(w.spread()))
		case <-renew:
			return listAgain
		case <-g.waiters.recheck:
			if first, last := g.waiters.ends(); first != w.waiter || last.found.Known && !g.far(last) {
				return listAgain
			}
		case <-ctx.Done():
			return listAgain
		}
	}
	return isNear
}

// watching is what a far request watches.
type watching struct {
	*waiter
	left     []queue.Entry // the requests that are not gone
	enough   int           // when no more are left, the request may be near
	limit    limit.Revs
	requests int64 // in the queue
	still    *stillness
	every    time.Duration // as a Horizon says
}

// stillness is for how many looks a queue has not changed, as far as they show.
type stillness struct {
	requests int64 // at the last look
	looks    int
}

// see counts a look that has found so many requests.
func (s *stillness) see(requests int64) {
	if s.requests != requests {
		*s = stillness{requests: requests}
	}
	s.looks++
}

// end is for a change of the queue. It returns whether there was none for long.
func (s *stillness) end() bool {
	was := s.looks
	s.looks = 0
	return was > stillLooks
}

// stillLooks is how many looks in a row find the same before the next ones are less often, and
// stillPeriods how much less.
const (
	stillLooks   = 3
	stillPeriods = 4
)

func (w *watching) keys() (keys []string) {
	for _, e := range w.left {
		keys = append(keys, e.Key)
	}
	return keys
}

// period is how long the request sleeps at most before it looks.
func (w *watching) period() time.Duration {
	n := max(1, float64(w.requests)/lookCrowd)
	n *= n
	if w.still.looks > stillLooks {
		n = max(n, stillPeriods)
	}
	return time.Duration(float64(w.every) * n)
}

// spread is the time over which the far requests of a queue spread their lists if all have a
// reason at the same moment: as long as the lists take etcd.
func (w *watching) spread() time.Duration {
	return time.Duration(w.requests*w.requests)*listCost + 1
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// verify reads which of the watched requests exist. It is called when all watches exist: what was
// deleted before, they do not report. With more it reads what the list has shown as well; again is set if
// that is a reason to list: the request is gone, the limit has changed, or so many requests are gone that
// those which are watched may be among the last.
func (w *watching) verify(ctx context.Context, q *sessionQueue, more bool) (again bool, err error) {
	var ops []clientv3.Op
	for _, key := range w.keys() {
		ops = append(ops, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	if more {
		ops = append(ops, clientv3.OpGet(w.Key, clientv3.WithKeysOnly()), clientv3.OpGet(q.keys.Requests, clientv3.WithPrefix(), clientv3.WithCountOnly()))
		ops = append(ops, q.limit.Reads()...)
	}
	resp, err := q.readAll(ctx, w.waiter, ops)
	if err != nil {
		return false, err
	}
	kv := func(i int) *mvccpb.KeyValue { return limit.First(resp.Responses[i]) }
	var left []queue.Entry
	for i, e := range w.left {
		if kv := kv(i); kv != nil && kv.CreateRevision == e.Create {
			left = append(left, e)
		}
	}
	n := len(w.left)
	if len(left) < n {
		w.still.end()
	}
	w.left = left
	if !more {
		return false, nil
	}
	own, requests := kv(n), resp.Responses[n+1].GetResponseRange().Count
	w.still.see(requests)
	return own == nil || own.CreateRevision != w.Token || requests < w.requests*3/4 ||
		q.limit.Records(resp.Responses[n+2:]).Revs() != w.limit, nil
}
