package doctor

import (
	"maps"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// QueuesOf judges what is stored of the queues of a namespace, those of rates among them. word returns a name as a shell takes it.
// The state is settled, and has the details.
func QueuesOf(s *fleet.State, word func(name string) string, now time.Time) (found []Finding) {
	all := map[string]*fleet.Queue{}
	words := map[string]string{} // of totals
	for id, of := range s.Queues {
		all[id.Label()+"/"+id.Name] = of
	}
	for _, name := range slices.Sorted(maps.Keys(s.Limiters)) {
		lim, full := s.Limiters[name], "limiter/"+name
		found = append(found, limiter(full, word(full), lim)...)
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
