package fleet

import (
	"fmt"
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
		died bool
	}{
		"a permit": {has: func(h *history) []string {
			keys := h.space.Queue(keyspace.Semaphore, "charge")
			h.write(keys.Limit, record.Limit{Limit: 1, AtMS: 1}.Encode(), 0, now)
			h.write(keys.Slot(one), bounded(now), lease, now)
			return []string{keys.Slot(one)}
		}, died: true},
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
		}, died: true},
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
		}, died: true},
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
		}, died: true},
		"the plan of a job": {has: func(h *history) []string {
			h.write(h.space.User(lease, 0), record.User{Jobs: []string{"nightly"}}.Encode(), lease, now)
			return nil // its key is behind that of the session
		}},
		"an attempt": {has: func(h *history) []string {
			h.write(h.space.Store("orders").Entry("acme", "pay", "1").Record, record.Attempt{State: record.AttemptWorking, Number: 1, Lease: lease}.Encode(), 0, now)
			return nil
		}, died: true},
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
			var want []Died
			if c.died && !(released && len(keys) > 0) {
				want = []Died{{"web-7", now + 2*second}}
			}
			require.Equal(t, want, h.Died(now+3*second, asItIs), "%s, released before: %v", what, released)
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
