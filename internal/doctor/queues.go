package doctor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// QueuesOf judges what is stored of the queues of a namespace, those of rates among them. word returns a name as a shell takes it.
// The state is settled, and has the details.
func QueuesOf(s *fleet.State, word func(name string) string, now time.Time) (found []Finding) {
	all := map[string]*fleet.Queue{}
	words := map[string]string{} // of totals
	ids := slices.SortedFunc(maps.Keys(s.Queues), func(a, b fleet.QueueID) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	for _, id := range ids {
		of := s.Queues[id]
		name := id.Label() + "/" + id.Name
		if all[name] = of; id.Kind != keyspace.Election && id.Kind != keyspace.Rate {
			found = append(found, lasts(name, id.Kind == keyspace.Mutex, of.Now.Known && of.Now.Limit == 0, of.Now.OldestWait, of.Now.Unbounded, now)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Limiters)) {
		lim, full := s.Limiters[name], "limiter/"+name
		found = append(found, limiter(full, word(full), lim)...)
		found = append(found, limiterLasts(full, lim, now)...)
		if lim.Total != nil {
			all[full], words[full] = lim.Total, word(full)+" --total"
		}
		for key, of := range lim.Keys {
			all[full+"/"+key] = of
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w := words[name]
		if w == "" {
			w = word(name)
		}
		found = append(found, queue(name, w, all[name], now)...)
	}
	return append(found, Queues(len(all))...)
}

// The bounds of the delivered alerts EtcdkitOldestWait, EtcdkitMutexBlocked and EtcdkitHoldLong.
const (
	longWait  = time.Minute
	longBlock = 10 * time.Minute
	longHold  = time.Hour
)

// Lasts reports whether a request has waited, or has held without a MaxHold, for as long as an alert says. A time may be zero.
// It is not asked of elections and rates.
func Lasts(mutex, paused bool, wait, hold, now time.Time) (slow, held bool) {
	bound := longWait
	if mutex {
		bound = longBlock
	}
	return !paused && !wait.IsZero() && now.Sub(wait) > bound, !hold.IsZero() && now.Sub(hold) > longHold
}

// lasts judges what lasts for too long. wait and hold are in milliseconds, or 0.
func lasts(name string, mutex, paused bool, wait, hold int64, now time.Time) (found []Finding) {
	waits, holds := record.Time(wait), record.Time(hold)
	slow, held := Lasts(mutex, paused, waits, holds, now)
	if slow {
		found = QueueSlow(name, waits)
	}
	if held {
		found = append(found, QueueHeld(name, holds)...)
	}
	return found
}

// limiterLasts is as lasts, of the keys of a limiter and its total: a limiter is one name of an alert.
func limiterLasts(name string, of *fleet.Limiter, now time.Time) []Finding {
	sum := of.Sum(now.UnixMilli())
	paused, wait, hold := of.Paused(), sum.OldestWait, sum.Unbounded
	if total := of.Total; total != nil {
		paused = paused || total.Now.Known && total.Now.Limit == 0
		if at := total.Now.OldestWait; at != 0 && (wait == 0 || at < wait) {
			wait = at
		}
		hold = total.Now.Unbounded
	}
	return lasts(name, false, paused, wait, hold, now)
}

// queue judges one queue. word is its name, with the options that its limit needs.
func queue(name, word string, of *fleet.Queue, now time.Time) (found []Finding) {
	if keys := of.Strays(); len(keys) > 0 {
		found = append(found, QueueForeign(name, keys)...)
	}
	if why, bad := of.Unreadable(); bad {
		found = append(found, LimitUnreadable(name, why)...)
	}
	if of.Now.Known && of.Now.Limit == 0 && !of.Inherits() { // the default is a finding of its own
		found = append(found, QueuePaused(name, word, of.Now.Waiting)...)
	}
	late, may := of.Overdue(now.UnixMilli())
	return append(found, QueueOverdue(name, late, may)...)
}

// limiter judges a default limit.
func limiter(name, word string, of *fleet.Limiter) []Finding {
	if why, bad := of.Unreadable(); bad {
		return LimitUnreadable(name, why)
	}
	if of.Paused() {
		return DefaultPaused(name, word)
	}
	return nil
}
