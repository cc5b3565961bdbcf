package fleet

import (
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Limiter is one KeyedLimiter.
type Limiter struct {
	queues keyspace.Limiter
	Base   mirror.LimitRecord // the default limit
	Total  *Queue             // or nil
	Keys   map[string]*Queue
}

func (s *State) changeLimiter(key string, kv *mvccpb.KeyValue, now int64) {
	name, ok := s.space.ParseLimiter(key)
	if !ok {
		return
	}
	lim := s.Limiters[name]
	if lim == nil {
		lim = &Limiter{queues: s.space.Limiter(name), Keys: map[string]*Queue{}}
		s.Limiters[name] = lim
	}
	if key == lim.queues.Default {
		lim.Base = mirror.ReadLimitRecord(kv)
		for _, l := range lim.Keys {
			s.touch(l)
		}
	} else if of, ok := lim.queues.ParseKey(key); ok {
		l := lim.Keys[of]
		if l == nil {
			l = &Queue{keys: func() keyspace.Queue { return lim.queues.Key(of) }, limiter: lim, details: s.details}
			lim.Keys[of] = l
		}
		s.touch(l)
		if full := "limiter/" + name + "/" + of; s.countServed(full, l, key, kv) && !lim.hasTotal() {
			s.deaths.held(heldIn(l, full, key))
		}
		l.change(key, kv, now)
		if l.empty() {
			delete(lim.Keys, of)
			delete(s.dirty, l)
		}
	} else if total := lim.queues.Total(); strings.HasPrefix(key, total.Range) {
		if lim.Total == nil {
			lim.Total = &Queue{keys: func() keyspace.Queue { return total }, limiter: lim, isTotal: true, details: s.details}
		}
		s.touch(lim.Total)
		if full := "limiter/" + name; s.countServed(full, lim.Total, key, kv) {
			s.deaths.held(heldIn(lim.Total, full, key))
		}
		lim.Total.change(key, kv, now)
		if lim.Total.empty() {
			delete(s.dirty, lim.Total)
			lim.Total = nil
		}
	}
	if lim.Base.Rev == 0 && lim.Total == nil && len(lim.Keys) == 0 {
		delete(s.Limiters, name)
	}
}

// Sum is the state of a limiter's keys.
type Sum struct {
	Summary
	InUse, FullKeys int // keys
	Own             int // keys with a stored limit of their own, above 0
	Paused          int // keys with a limit of 0, in which no request is admitted, beside others that are; their waits are in Waiting alone
	Blocked         int // those of them at which requests wait
	Unreadable      int // limits that cannot be read, of keys and the default
	HasTotal        bool
	Late            int // requests that hold for longer than their MaxHold
}

// addWaits adds what is waited for at a key.
func (s *Sum) addWaits(n Summary) {
	if n.OldestWait != 0 && (s.OldestWait == 0 || n.OldestWait < s.OldestWait) {
		s.OldestWait = n.OldestWait
	}
	if n.Full && (n.Used > 0 || n.Waiting > 0) {
		s.FullKeys++
	}
}

// Requests returns how many requests the limiter has. One that is admitted at its key and waits for the
// total counts once.
func (lim *Limiter) Requests() (n int) {
	for _, l := range lim.Keys {
		n += l.Len()
	}
	return n
}

// hasTotal reports whether permits are held in the total.
func (lim *Limiter) hasTotal() bool { return lim.Total != nil || lim.Base.Total }

// Sum adds up the keys. Of a limiter with a total, permits are held in the total.
func (lim *Limiter) Sum(now int64) (out Sum) {
	paused := lim.Paused()
	out.HasTotal = lim.hasTotal()
	if lim.Base.Damaged {
		out.Unreadable++
	}
	for _, l := range lim.Keys {
		n := l.Now
		if l.admits {
			out.Own++
		}
		if why, ok := errors.AsType[record.UnreadableError](n.Unreadable); ok && why.Key != lim.queues.Default {
			out.Unreadable++
		}
		out.Used += n.Used
		out.Waiting += n.Waiting
		out.Weight += n.Weight
		out.Foreign += n.Foreign
		if n.Used > 0 || n.Waiting > 0 {
			out.InUse++
		}
		if !paused && n.Known && n.Limit == 0 { // its waits say nothing of the other keys
			out.Paused++
			if n.Waiting > 0 {
				out.Blocked++
			}
		} else {
			out.addWaits(n)
		}
		if out.HasTotal {
			continue
		}
		out.Late += n.Overdue(now)
		if n.Unbounded != 0 && (out.Unbounded == 0 || n.Unbounded < out.Unbounded) {
			out.Unbounded = n.Unbounded
		}
		if n.OldestHold != 0 && (out.OldestHold == 0 || n.OldestHold < out.OldestHold) {
			out.OldestHold, out.MaxHold = n.OldestHold, n.MaxHold
		}
	}
	return out
}
