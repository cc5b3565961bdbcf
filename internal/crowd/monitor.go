package crowd

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// monitor decides when the waiting requests of a session follow their queue, as long as there are any. It
// decides no admission: if it is late or mistaken, a request waits longer.
type monitor struct {
	*Crowd
	stop     func()  // ends the watches of the requests before the first
	first    *Waiter // when it was last looked at
	tooEarly bool    // it has followed the queue, and was far again
	slept    bool    // it is near because its sleep has ended
	still    stillness
}

// followPause bounds the pause after a request has followed the queue in vain.
const followPause = 200 * time.Millisecond

func (m *monitor) run() {
	ctx := m.Session.Context()
	defer m.own.leave()
	defer func() { m.stop() }()
	m.own.join()
	var failed commit.Backoff
	backoff := commit.Backoff{Most: followPause}
	for ctx.Err() == nil {
		s := m.waiters.next()
		if s == nil {
			return
		}
		m.own.follow(m.Crowd, s.ownKeys())
		m.bySample.Store(m.sampled(s.Found, m.waiters.count()))
		var near bool
		var err error
		if s != m.first {
			m.first, m.tooEarly, m.still = s, false, stillness{}
			backoff.Reset()
			near = !m.far(s)
		}
		if !near {
			near, err = m.untilNear(ctx, s)
			m.slept = near
		}
		if err != nil {
			_ = failed.Wait(ctx, nil)
			continue
		}
		failed.Reset()
		if !near {
			continue
		}
		m.stop()
		m.stop = func() {}
		if m.tooEarly = m.followFront(ctx); m.tooEarly {
			_ = backoff.Wait(ctx, nil) // what the list has shown as near may be far for the view, again and again
		}
	}
}

// followFront has the requests follow the front of the queue until none is left, or the first is far. It returns
// true if m.first was far from the beginning.
func (m *monitor) followFront(ctx context.Context) (tooEarly bool) {
	view := m.Front.Join()
	defer view.Leave()
	renew := time.NewTicker(m.Horizon.Renew)
	defer renew.Stop()
	for followed := false; ; {
		s, _ := m.waiters.ends()
		if s == nil {
			return false
		}
		m.own.follow(m.Crowd, s.ownKeys())
		seen, changed := view.Seen()
		if seen >= s.Token {
			ahead, shown := view.Ahead(s.Key, s.Token) // for a request that is gone there is none
			stays := m.stays(ahead, limit.SeenN(m.Limit))
			if s == m.first && m.slept && shown && stays {
				m.learn(ahead)
			}
			m.slept = false
			if !stays {
				s.ahead, s.from, s.placed = int64(ahead), m.samples.left.Load(), true
				m.waiters.setMode(Asleep)
				return s == m.first && !followed && !m.bySample.Load()
			}
			if view.Alone() && !m.deletionsAlone(2) { // the session has more requests by now
				m.Front.Replace()
				view.Next()
				continue
			}
			m.waiters.setMode(Front)
			followed = true
			changed = nil
		}
		select {
		case <-m.waiters.recheck:
		case <-changed:
		case <-m.own.changed:
			view.ListAgain()
		case <-renew.C:
		case <-view.Replaced:
			view.Next()
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

// untilNear lists the requests before one, and waits until it is near. It returns false when they have to
// be listed again.
func (m *monitor) untilNear(ctx context.Context, s *Waiter) (near bool, err error) {
	if m.bySample.Load() {
		return m.untilSampled(ctx, s)
	}
	t, err := m.tail(ctx, s)
	if err != nil {
		return false, err
	}
	h := m.horizon()
	if !m.tooEarly {
		h = h.Few(t.limit.N)
	}
	w := watched{Waiter: s, left: h.Watch(t.before, t.limit.N), limit: t.limit.Revs, requests: t.requests, still: &m.still, enough: h.Watched - h.Gone, every: h.Look}
	w.still.see(t.requests)
	if t.unclear || w.left == nil {
		return true, nil
	}
	gone, closed := make(chan string, h.Watched), make(chan struct{}, 1)
	stop, err := m.Session.Source().Deletions(ctx, w.spans(), func(key string) {
		select {
		case gone <- key:
		default: // it was created and deleted again
		}
	}, func(error) { signal(closed) })
	if err != nil {
		return false, err
	}
	m.stop() // not before the others exist: the end of the last watch of a stream closes it (W14 in internal/proof/tested-failures.md)
	m.stop = stop
	renew := time.NewTimer(jitter(h.Renew))
	defer renew.Stop()
	for n := range listEvery {
		again, err := w.verify(ctx, m.Crowd, n > 0)
		if again || err != nil {
			return false, err
		}
		if next := m.sleepUntil(ctx, &w, gone, closed, renew.C); next != lookAgain {
			return next == followNow, ctx.Err()
		}
	}
	return false, nil
}

type afterSleep int

const (
	lookAgain afterSleep = iota
	listAgain
	followNow // it is near
)

// sleepUntil waits until there is something to do for a far request.
func (m *monitor) sleepUntil(ctx context.Context, w *watched, gone <-chan string, closed <-chan struct{}, renew <-chan time.Time) afterSleep {
	look := time.NewTimer(jitter(w.period()))
	defer look.Stop()
	then := lookAgain
	for len(w.left) > w.enough {
		select {
		case key := <-gone:
			w.left = slices.DeleteFunc(w.left, func(e rank.Entry) bool { return e.Key == key })
			if w.still.end() {
				look.Reset(jitter(w.period()))
			}
		case <-look.C:
			return then
		case <-m.own.changed:
			if !m.far(w.Waiter) {
				return listAgain
			}
			look.Reset(rand.N(w.spread())) // all far requests of the queue have learned it at the same moment
		case <-closed:
			then = listAgain
			look.Reset(rand.N(w.spread()))
		case <-renew:
			return listAgain
		case <-m.waiters.recheck:
			if first, last := m.waiters.ends(); first != w.Waiter || last.Found.Known && !m.far(last) {
				return listAgain
			}
		case <-ctx.Done():
			return listAgain
		}
	}
	return followNow
}
