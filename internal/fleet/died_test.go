package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

func asItIs(owner string) string { return owner }

// A406: no metric and no alert said that a process had died. It died if its lease ended with what it held, ran or executed, and not
// if it had released that before, had nothing or waited.
func TestDied(t *testing.T) {
	t.Parallel()
	const lease, now = 7, 1000 * second
	one := keyspace.Slot{Lease: lease, Weight: 1}
	for what, c := range map[string]struct {
		// has returns what a session has, in the order of the names.
		has  func(h *history) []string
		left []string // of these, what ends before the session
		died string   // the name of what it had, or "" if it did not die
	}{
		"a permit": {has: func(h *history) []string {
			keys := h.space.Queue(keyspace.Semaphore, "charge")
			h.write(keys.Limit, record.Limit{Limit: 1, AtMS: 1}.Encode(), 0, now)
			h.write(keys.Slot(one), bounded(now), lease, now)
			return []string{keys.Slot(one)}
		}, died: "semaphore/charge"},
		"a request that waits": {has: func(h *history) []string {
			keys := h.space.Queue(keyspace.Semaphore, "charge")
			h.write(keys.Limit, record.Limit{Limit: 1, AtMS: 1}.Encode(), 0, now)
			h.write(keys.Slot(keyspace.Slot{Lease: 8, Weight: 1}), bounded(now), 8, now)
			h.write(keys.Slot(one), bounded(now), lease, now)
			return []string{keys.Slot(one)}
		}},
		"the mutex": {has: func(h *history) []string {
			keys := h.space.Queue(keyspace.Mutex, "report")
			h.write(keys.Slot(one), bounded(now), lease, now)
			return []string{keys.Slot(one)}
		}, died: "mutex/report"},
		"a share of a rate": {has: func(h *history) []string {
			keys := h.space.Queue(keyspace.Rate, "mail")
			h.write(keys.Limit, record.Limit{Limit: 5, AtMS: 1, Rate: record.Rate{PerSecond: 5, Burst: 5}}.Encode(), 0, now)
			h.write(keys.Slot(one), bounded(now), lease, now)
			return []string{keys.Slot(one)}
		}},
		"a permit of a key": {has: func(h *history) []string {
			lim := h.space.Limiter("api")
			h.write(lim.Default, record.Limit{Limit: 1, AtMS: 1}.Encode(), 0, now)
			h.write(lim.Key("acme").Slot(one), bounded(now), lease, now)
			return []string{lim.Key("acme").Slot(one)}
		}, died: "limiter/api/acme"},
		"a place at a key, and not in the total": {has: func(h *history) []string {
			lim := h.space.Limiter("api")
			h.write(lim.Default, record.Limit{Limit: 1, AtMS: 1, Total: true}.Encode(), 0, now)
			h.write(lim.Total().Limit, record.Limit{Limit: 0, AtMS: 1}.Encode(), 0, now)
			h.write(lim.Key("acme").Slot(one), bounded(now), lease, now)
			h.write(lim.Total().Slot(one), bounded(now), lease, now)
			return []string{lim.Key("acme").Slot(one), lim.Total().Slot(one)}
		}},
		"the lock of a run": {has: func(h *history) []string {
			keys := h.space.Job("nightly")
			h.write(keys.Lock(), "{}", lease, now)
			return []string{keys.Lock()}
		}, died: "job/nightly"},
		"the plan of a job": {has: func(h *history) []string {
			h.write(h.space.User(lease, 0), record.User{Jobs: []string{"nightly"}}.Encode(), lease, now)
			return nil // its key is behind that of the session
		}},
		"an attempt": {has: func(h *history) []string {
			h.write(h.space.Store("orders").Entry("acme", "pay", "1").Record, record.Attempt{State: record.AttemptWorking, Number: 1, Lease: lease}.Encode(), 0, now)
			return nil
		}, died: "requests/orders"},
		"nothing": {has: func(*history) []string { return nil }},
	} {
		for _, released := range []bool{false, true} {
			h := newHistory(t)
			alive := h.open(lease, "web-7")
			keys := c.has(h)
			h.Settle(now)
			if released {
				for _, key := range keys {
					h.remove(now+second, key)
				}
				h.remove(now+2*second, alive)
			} else {
				h.remove(now+2*second, append(keys, alive)...)
			}
			var want, got []string
			if c.died != "" && !(released && len(keys) > 0) {
				want = []string{fmt.Sprintf("web-7 at %d with %s", now+2*second, c.died)}
			}
			for _, d := range h.Died(now+3*second, asItIs) {
				for _, had := range d.Had {
					got = append(got, fmt.Sprintf("%s at %d with %s", d.Owner, d.At, had.Name))
					require.Equal(t, had.Ref == "", had.Token != 0 || strings.HasPrefix(had.Name, "job/"), what)
				}
			}
			require.Equal(t, want, got, "%s, released before: %v", what, released)
		}
	}
}

// The latest ten are known, for an hour, also after another list of the namespace; of one owner the latest counts.
func TestDiedLately(t *testing.T) {
	t.Parallel()
	const now = 1000 * second
	h := newHistory(t)
	lock := h.space.Job("nightly").Lock()
	kill := func(lease int64, owner string, at int64) {
		alive := h.open(lease, owner)
		h.write(lock, "{}", lease, at)
		h.remove(at, lock, alive)
	}
	for n := range int64(12) {
		kill(n+1, fmt.Sprint("web-", n), now+n*second)
	}
	owners := func(at int64) (all []string) {
		next := NewState(h.space, false)
		next.inherit(h.State)
		for _, d := range next.Died(at, asItIs) {
			all = append(all, d.Owner)
		}
		return all
	}
	require.Equal(t, []string{"web-11", "web-10", "web-9", "web-8", "web-7", "web-6", "web-5", "web-4", "web-3", "web-2"}, owners(now+20*second))
	kill(20, "web-2", now+20*second)
	require.Equal(t, []string{"web-2", "web-11", "web-10"}, owners(now + 20*second)[:3])
	require.Equal(t, []string{"web-2", "web-11"}, owners(now+11*second+3600*second))
	require.Empty(t, owners(now+21*second+3600*second))
	kill(21, "web-0", now+4000*second)
	require.Len(t, h.deaths.of, 1)
	h.remove(now, h.open(22, "idle"))
	require.Empty(t, h.deaths.holds, "what ended at another revision is forgotten")
}

// A515: processes that died while the namespace was read again are known to both lists: together so many at most are listed.
func TestDiedWhileTheNamespaceWasReadAgain(t *testing.T) {
	t.Parallel()
	const now = 1000 * second
	kill := func(h *history, n int64) {
		lock, alive := h.space.Job("nightly").Lock(), h.open(n+1, fmt.Sprint("web-", n))
		h.write(lock, "{}", n+1, now+n*second)
		h.remove(now+n*second, lock, alive)
	}
	before, next := newHistory(t), newHistory(t)
	for n := range int64(mostDied) {
		kill(before, n)
		kill(next, n+mostDied/2)
	}
	next.inherit(before.State)
	var owners []string
	for _, d := range next.Died(now+100*second, asItIs) {
		owners = append(owners, d.Owner)
	}
	require.Equal(t, []string{"web-14", "web-13", "web-12", "web-11", "web-10", "web-9", "web-8", "web-7", "web-6", "web-5"}, owners)
}

// A433: what a process had is known after its death, by its names, of several sessions of one owner together, and so much at most. The
// lease of a permit that outlives its process (A434) expires at its end, and nothing has died.
func TestWhatTheDeadHad(t *testing.T) {
	t.Parallel()
	const now = 1000 * second
	h := newHistory(t)
	h.State = NewState(h.space, true)
	keys, lock := h.space.Queue(keyspace.Semaphore, "charge"), h.space.Job("nightly").Lock()
	request := func(lease int64, n int, note string) string {
		slot := keys.Slot(keyspace.Slot{Lease: lease, Number: n, Weight: 1})
		h.write(slot, record.Request{Nonce: "n", AtMS: now, ID: "K", Note: note}.Encode(), lease, now)
		return slot
	}
	h.write(keys.Limit, record.Limit{Limit: 1000, AtMS: 1}.Encode(), 0, now)
	h.write(h.space.Store("orders").Entry("acme", "pay", "1").Record, record.Attempt{State: record.AttemptWorking, Number: 1, Lease: 7, Owner: "web", Note: "card"}.Encode(), 0, now)
	first, second1 := h.open(7, "web"), h.open(8, "web")
	one := request(7, 1, "tenant 7")
	h.write(lock, "{}", 8, now)
	h.Settle(now)
	h.remove(now, one, first)
	h.remove(now, lock, second1)
	died := h.Died(now, asItIs)
	require.Len(t, died, 1)
	var had []string
	for _, of := range died[0].Had {
		had = append(had, strings.TrimSuffix(strings.Join([]string{of.Name, of.ID, of.Note}, " "), "  "))
	}
	require.Equal(t, []string{"job/nightly", "requests/orders  card", "semaphore/charge K tenant 7"}, had)
	require.NotZero(t, died[0].Had[0].Token)
	require.Equal(t, "web", h.Stores["orders"].Owners()[died[0].Had[1].Ref])

	many, slots := h.open(9, "many"), []string{}
	for n := range mostHad + 5 {
		slots = append(slots, request(9, n, ""))
	}
	held := h.open(10, record.HoldOwner+"ada@ci")
	kept := request(10, 0, "")
	h.Settle(now)
	h.remove(now, append(slots, many)...)
	h.remove(now, kept, held)
	died = h.Died(now, asItIs)
	require.Equal(t, []string{"many", "web"}, []string{died[0].Owner, died[1].Owner})
	require.Len(t, died, 2, "etcdkit hold has no process")
	require.Len(t, died[0].Had, mostHad)
}

// A435: a key with a limit of its own of 0 is paused on purpose: what waits there says nothing of the others.
func TestPausedKeysOfALimiter(t *testing.T) {
	t.Parallel()
	const now = 1000 * second
	h := newHistory(t)
	lim := h.space.Limiter("api")
	ask := func(key string, n int, at int64) {
		h.write(lim.Key(key).Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}), bounded(at), 7, at)
	}
	sum := func() []int64 {
		h.Settle(now)
		s := h.Limiters["api"].Sum(now)
		return []int64{int64(s.Paused), int64(s.FullKeys), s.OldestWait, int64(s.Waiting)}
	}
	h.write(lim.Default, record.Limit{Limit: 5, AtMS: 1}.Encode(), 0, 1)
	h.write(lim.Key("bad").Limit, record.Limit{AtMS: 1}.Encode(), 0, 1)
	ask("bad", 0, second)
	ask("good", 0, second)
	require.Equal(t, []int64{1, 0, 0, 1}, sum())
	for n := 1; n < 7; n++ { // 5 of them hold
		ask("good", n, int64(n)*second)
	}
	require.Equal(t, []int64{1, 1, 5 * second, 3}, sum(), "a key that stalls is not hidden")
	h.write(lim.Key("own").Limit, record.Limit{Limit: 1, AtMS: 1}.Encode(), 0, 1)
	h.write(lim.Default, record.Limit{AtMS: 2}.Encode(), 0, 1)
	require.EqualValues(t, 2, sum()[0], "a default of 0 pauses the keys without a limit of their own")
	h.remove(now, lim.Key("own").Limit)
	require.Equal(t, []int64{0, 2, second}, sum()[:3], "a limiter that is paused as a whole shows its waits")
}

// A431: a key of another program is known in each part of the namespace, and no more when it is deleted.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	root := h.space.Root()
	outside := []string{root + "idempotency/orders/junk", root + "session/xyz", root + "zzz/unknown"}
	inJobs := []string{root + "job/nightly/junk", root + "job/nightly/run/zzz"}
	h.open(7, "web-7")
	h.write(h.space.Job("nightly").Lock(), "{}", 7, 1)
	for _, key := range slices.Concat(outside, inJobs) {
		h.write(key, "x", 0, 1)
		h.write(key, "y", 0, 1)
	}
	keys, jobs := h.Foreign()
	require.Equal(t, outside, keys)
	require.Equal(t, map[string]int{"nightly": 2}, jobs)
	h.remove(1, slices.Concat(outside, inJobs)...)
	keys, jobs = h.Foreign()
	require.Empty(t, keys)
	require.Empty(t, jobs)
}
