package concurrency

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// asleepIn is a guide whose first request is far in a queue of so many, and watches four others.
func asleepIn(requests int64) (*guide, *watching) {
	q := &sessionQueue{limit: limit.NewFixed(1), horizon: queue.StoredLimit, view: mirror.NewShared(keyspace.Queue{}, 1, nil)}
	q.waiters = waiters{moved: make(chan struct{}), recheck: make(chan struct{}, 1)}
	q.distant.changed = make(chan struct{}, 1)
	s := &waiter{ticket: &ticket{Key: "own", Token: 100, found: mirror.Found{Known: true, Ahead: 50}}}
	q.waiters.link(s)
	w := &watching{waiter: s, requests: requests, still: &stillness{requests: requests}, enough: 2, every: time.Second}
	for _, key := range []string{"a", "b", "c", "d"} {
		w.left = append(w.left, queue.Entry{Key: key})
	}
	return &guide{sessionQueue: q}, w
}

// One row for each thing that ends the sleep of a far request: what it does then, and not later than when.
func TestGuideSleeps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests int64
		do       func(g *guide, gone chan string, closed, recheck chan struct{}, renew chan time.Time)
		then     afterSleep
		by       time.Duration // when, at the latest
	}{
		"nothing happens": {300, func(*guide, chan string, chan struct{}, chan struct{}, chan time.Time) {}, lookAgain, time.Second},
		"nothing happens in a crowd (W15)": {1200, func(*guide, chan string, chan struct{}, chan struct{}, chan time.Time) {},
			lookAgain, 16 * time.Second},
		"one is gone (W9)": {300, func(_ *guide, gone chan string, _, _ chan struct{}, _ chan time.Time) { gone <- "b" }, lookAgain, time.Second},
		"one is gone twice": {300, func(_ *guide, gone chan string, _, _ chan struct{}, _ chan time.Time) { gone <- "b"; gone <- "b" },
			lookAgain, time.Second},
		"two are gone (W9)": {300, func(_ *guide, gone chan string, _, _ chan struct{}, _ chan time.Time) { gone <- "b"; gone <- "d" }, isNear, 0},
		"the limit changes (W11)": {2000, func(g *guide, _ chan string, _, _ chan struct{}, _ chan time.Time) { g.distant.changed <- struct{}{} },
			lookAgain, 10 * time.Second},
		"a limit that admits it": {300, func(g *guide, _ chan string, _, _ chan struct{}, _ chan time.Time) {
			g.limit = limit.NewFixed(51)
			g.distant.changed <- struct{}{}
		}, listAgain, 0},
		"a watch ends (W13)":        {300, func(_ *guide, _ chan string, closed, _ chan struct{}, _ chan time.Time) { closed <- struct{}{} }, listAgain, time.Second},
		"the watches are old (W13)": {300, func(_ *guide, _ chan string, _, _ chan struct{}, renew chan time.Time) { renew <- time.Now() }, listAgain, 0},
		"another is the first": {300, func(g *guide, _ chan string, _, recheck chan struct{}, _ chan time.Time) {
			g.waiters.link(&waiter{ticket: &ticket{Token: 50}})
			recheck <- struct{}{}
		}, listAgain, 0},
		"one has come that is near": {300, func(g *guide, _ chan string, _, recheck chan struct{}, _ chan time.Time) {
			g.waiters.link(&waiter{ticket: &ticket{Token: 200, found: mirror.Found{Known: true, Ahead: 2}}})
			recheck <- struct{}{}
		}, listAgain, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, w := asleepIn(c.requests)
				gone, closed, renew := make(chan string, 4), make(chan struct{}, 1), make(chan time.Time, 1)
				c.do(g, gone, closed, g.waiters.recheck, renew)
				begun := time.Now()
				require.Equal(t, c.then, g.sleepUntil(t.Context(), w, gone, closed, renew))
				require.LessOrEqual(t, time.Since(begun), c.by)
			})
		})
	}
}

// How long a far request sleeps at most, after looks that have found so many requests. Where nothing
// changes, a look is rare, and after a change it is not.
func TestLooksInAQuietQueue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks  []int64 // how many requests each has found
		period time.Duration
	}{
		"at first":                       {[]int64{300}, time.Second},
		"nothing has changed":            {[]int64{300, 300, 300}, time.Second},
		"nothing has changed for long":   {[]int64{300, 300, 300, 300}, 4 * time.Second},
		"nothing, among more":            {[]int64{450, 450, 450, 450}, 4 * time.Second},
		"nothing, in a crowd (W15)":      {[]int64{1200, 1200, 1200, 1200}, 16 * time.Second},
		"one has left":                   {[]int64{300, 300, 300, 300, 300, 299}, time.Second},
		"one has come":                   {[]int64{300, 300, 300, 300, 300, 301}, time.Second},
		"one has left, and then nothing": {[]int64{301, 300, 300, 300, 300}, 4 * time.Second},
	} {
		w := watching{still: &stillness{}, every: time.Second, requests: c.looks[0]}
		for _, n := range c.looks {
			w.still.see(n)
		}
		require.Equal(t, c.period, w.period(), name)
	}
}

// One of the watched requests is gone, after nothing has happened for long: the next look comes soon.
func TestLookAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, w := asleepIn(300)
		for range 10 {
			w.still.see(300)
		}
		gone := make(chan string, 1)
		time.AfterFunc(10*time.Millisecond, func() { gone <- "b" })
		begun := time.Now()
		require.Equal(t, lookAgain, g.sleepUntil(t.Context(), w, gone, nil, nil))
		require.LessOrEqual(t, time.Since(begun), 10*time.Millisecond+time.Second)
	})
}

// W11: all far requests of a queue have a reason to list at the same moment. Their lists are spread over the
// time that they take etcd, so that etcd is never asked for more than it can answer.
func TestTrapW11ListsAreSpread(t *testing.T) {
	t.Parallel()
	const listOf2000 = 5 * time.Millisecond // what etcd needs, as measured
	for name, reason := range map[string]func(g *guide, closed chan struct{}){
		"the limit changes": func(g *guide, _ chan struct{}) { signal(g.distant.changed) },
		"the watches end":   func(_ *guide, closed chan struct{}) { signal(closed) },
	} {
		for _, requests := range []int{300, 2000} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					list := listOf2000 * time.Duration(requests) / 2000
					var mu sync.Mutex
					var at []time.Duration // when they list
					var all sync.WaitGroup
					begun := time.Now()
					for range requests {
						all.Go(func() {
							g, w := asleepIn(int64(requests))
							w.every = time.Hour // what wakes it is the reason
							closed := make(chan struct{}, 1)
							reason(g, closed)
							g.sleepUntil(t.Context(), w, nil, closed, nil)
							mu.Lock()
							defer mu.Unlock()
							at = append(at, time.Since(begun))
						})
					}
					all.Wait()
					slices.Sort(at)
					whole := time.Duration(requests) * list
					require.LessOrEqual(t, at[requests-1], whole*11/10, "and no longer than that")
					for part := range time.Duration(10) {
						until, _ := slices.BinarySearch(at, (part+1)*whole/10)
						from, _ := slices.BinarySearch(at, part*whole/10)
						require.InDelta(t, requests/10, until-from, 0.8*float64(requests/10), "lists in each tenth of that time")
					}
				})
			})
		}
	}
}

// W12: an answer that is older than the request shows nothing of it.
func TestTrapW12OldAnswer(t *testing.T) {
	t.Parallel()
	s := &waiter{ticket: &ticket{Token: 120}}
	require.ErrorIs(t, s.shownAt(110), errOld)
	require.NoError(t, s.shownAt(120))
}

// A guide begins while the former one ends. What both of them need stays watched until the last has ended.
func TestDistantWhileGuidesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		d := distant{own: "own", stop: func() { ended.Store(true) }}
		d.join()
		d.join()
		d.leave()
		time.Sleep(2 * distantLingers)
		require.False(t, ended.Load(), "a guide needs it")
		d.leave()
		time.Sleep(distantLingers / 2)
		require.False(t, ended.Load(), "the next guide comes soon")
		d.join()
		d.leave()
		time.Sleep(2 * distantLingers)
		require.True(t, ended.Load())
	})
}
