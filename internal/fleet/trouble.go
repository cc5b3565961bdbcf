package fleet

import (
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Paused reports whether a default limit of 0 pauses all keys. Beside one of 0 the keys that have a limit of their own are
// admitted: it allows those alone, and is no pause.
func (lim *Limiter) Paused() bool {
	if lim.Base.Rev == 0 || lim.Base.Damaged || lim.Base.Limit.Limit != 0 {
		return false
	}
	for _, l := range lim.Keys {
		if l.admits {
			return false
		}
	}
	return true
}

// Unreadable returns why the default limit cannot be read; ok is false if it can, or if there is none.
func (lim *Limiter) Unreadable() (why record.UnreadableError, ok bool) {
	return lim.Base.Why, lim.Base.Damaged
}

// Unreadable returns why the stored limit of the queue cannot be read; ok is false if it can, or if there is none.
func (l *Queue) Unreadable() (why record.UnreadableError, ok bool) {
	stored := mirror.ReadLimitRecord(l.limit)
	return stored.Why, stored.Damaged
}

// Inherits reports whether the queue is a key of a limiter that has its default limit.
func (l *Queue) Inherits() bool { return l.limiter != nil && !l.isTotal && !l.Own() }

// Strays returns the keys in the range of the queue that are not etcdkit's, in order. The key of the limit is never among them, even
// if that cannot be read: a later release may have written it. With Options.Details.
func (l *Queue) Strays() (keys []string) {
	if l.Now.Foreign == 0 {
		return nil
	}
	return l.ForeignKeys()
}

// Overdue returns how many requests of the queue hold for longer than their MaxHold, since they were first seen to hold, and how
// many of the others were made longer ago than that: the time of a grant is not stored, so they may. At the key of a limiter with a
// total, which is held for as long, it returns none. With Options.Details.
func (l *Queue) Overdue(now int64) (late, may int) {
	if l.limiter != nil && !l.isTotal && (l.limiter.Total != nil || l.limiter.Base.Total) {
		return 0, 0
	}
	for _, e := range l.order[:l.holders] {
		switch {
		case e.maxHold == 0 || e.seen == gone:
		case e.seen > 0 && e.seen+e.maxHold < now:
			late++
		case e.at+e.maxHold < now:
			may++
		}
	}
	return late, may
}
