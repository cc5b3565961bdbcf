package crowd

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
	"github.com/etcdkit/etcdkit/internal/rank"
)

// asleepIn is a monitor whose first request is far in a queue of so many, and watches four others.
func asleepIn(requests int64) (*monitor, *watched) {
	c := New(Queue{Limit: limit.NewFixed(1), Horizon: rank.StoredLimit, View: mirror.NewShared(keyspace.Queue{}, 1, nil)})
	s := &Waiter{Request: Request{Key: "own", Token: 100, Found: mirror.Found{Known: true, Ahead: 50}}}
	c.waiters.link(s)
	w := &watched{Waiter: s, requests: requests, still: &stillness{requests: requests}, enough: 2, every: time.Second}
	for _, key := range []string{"a", "b", "c", "d"} {
		w.left = append(w.left, rank.Entry{Key: key})
	}
	return &monitor{Crowd: c}, w
}

// One row for each thing that ends the sleep of a far request: what it does then, and not later than when.
func TestMonitorSleeps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests int64
		do       func(m *monitor, gone chan string, closed, recheck chan struct{}, renew chan time.Time)
		then     afterSleep
		by       time.Duration // when, at the latest
	}{
		"nothing happens": {300, func(*monitor, chan string, chan struct{}, chan struct{}, chan time.Time) {}, lookAgain, time.Second},
		"nothing happens in a crowd (W15)": {1200, func(*monitor, chan string, chan struct{}, chan struct{}, chan time.Time) {},
			lookAgain, 16 * time.Second},
		"one is gone (W9)": {300, func(_ *monitor, gone chan string, _, _ chan struct{}, _ chan time.Time) { gone <- "b" }, lookAgain, time.Second},
		"one is gone twice": {300, func(_ *monitor, gone chan string, _, _ chan struct{}, _ chan time.Time) { gone <- "b"; gone <- "b" },
			lookAgain, time.Second},
		"two are gone (W9)": {300, func(_ *monitor, gone chan string, _, _ chan struct{}, _ chan time.Time) { gone <- "b"; gone <- "d" }, followNow, 0},
		"the limit changes (W11)": {2000, func(m *monitor, _ chan string, _, _ chan struct{}, _ chan time.Time) { m.own.changed <- struct{}{} },
			lookAgain, 10 * time.Second},
		"a limit that admits it": {300, func(m *monitor, _ chan string, _, _ chan struct{}, _ chan time.Time) {
			m.Limit = limit.NewFixed(51)
			m.own.changed <- struct{}{}
		}, listAgain, 0},
		"a watch ends (W13)":        {300, func(_ *monitor, _ chan string, closed, _ chan struct{}, _ chan time.Time) { closed <- struct{}{} }, listAgain, time.Second},
		"the watches are old (W13)": {300, func(_ *monitor, _ chan string, _, _ chan struct{}, renew chan time.Time) { renew <- time.Now() }, listAgain, 0},
		"another is the first": {300, func(m *monitor, _ chan string, _, recheck chan struct{}, _ chan time.Time) {
			m.waiters.link(&Waiter{Request: Request{Token: 50}})
			recheck <- struct{}{}
		}, listAgain, 0},
		"one has come that is near": {300, func(m *monitor, _ chan string, _, recheck chan struct{}, _ chan time.Time) {
			m.waiters.link(&Waiter{Request: Request{Token: 200, Found: mirror.Found{Known: true, Ahead: 2}}})
			recheck <- struct{}{}
		}, listAgain, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, w := asleepIn(c.requests)
				gone, closed, renew := make(chan string, 4), make(chan struct{}, 1), make(chan time.Time, 1)
				c.do(m, gone, closed, m.waiters.recheck, renew)
				begun := time.Now()
				require.Equal(t, c.then, m.sleepUntil(t.Context(), w, gone, closed, renew))
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
		w := watched{still: &stillness{}, every: time.Second, requests: c.looks[0]}
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
		m, w := asleepIn(300)
		for range 10 {
			w.still.see(300)
		}
		gone := make(chan string, 1)
		time.AfterFunc(10*time.Millisecond, func() { gone <- "b" })
		begun := time.Now()
		require.Equal(t, lookAgain, m.sleepUntil(t.Context(), w, gone, nil, nil))
		require.LessOrEqual(t, time.Since(begun), 10*time.Millisecond+time.Second)
	})
}

// W11: all far requests of a queue have a reason to list at the same moment. Their lists are spread over the
// time that they take etcd, so that etcd is never asked for more than it can answer.
func TestTrapW11ListsAreSpread(t *testing.T) {
	t.Parallel()
	const listOf2000 = 5 * time.Millisecond // what etcd needs, as measured
	for name, reason := range map[string]func(m *monitor, closed chan struct{}){
		"the limit changes": func(m *monitor, _ chan struct{}) { signal(m.own.changed) },
		"the watches end":   func(_ *monitor, closed chan struct{}) { signal(closed) },
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
							m, w := asleepIn(int64(requests))
							w.every = time.Hour // what wakes it is the reason
							closed := make(chan struct{}, 1)
							reason(m, closed)
							m.sleepUntil(t.Context(), w, nil, closed, nil)
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
	s := &Waiter{Request: Request{Token: 120}}
	require.ErrorIs(t, s.shownAt(110), errOld)
	require.NoError(t, s.shownAt(120))
}

// A monitor begins while the former one ends. What both of them need stays watched until the last has ended.
func TestOwnWatchesWhileMonitorsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		d := ownWatches{prefix: "own", stop: func() { ended.Store(true) }}
		d.join()
		d.join()
		d.leave()
		time.Sleep(2 * ownLingers)
		require.False(t, ended.Load(), "a monitor needs it")
		d.leave()
		time.Sleep(ownLingers / 2)
		require.False(t, ended.Load(), "the next monitor comes soon")
		d.join()
		d.leave()
		time.Sleep(2 * ownLingers)
		require.True(t, ended.Load())
	})
}
