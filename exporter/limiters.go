package exporter

import (
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// limiter is one KeyedLimiter.
type limiter struct {
	queues keyspace.Limiter
	base   mirror.Stored // the default limit
	total  *line         // or nil
	keys   map[string]*line
}

func (s *state) changeLimiter(key string, kv *mvccpb.KeyValue, now int64) {
	name, ok := s.space.ParseLimiter(key)
	if !ok {
		return
	}
	lim := s.limiters[name]
	if lim == nil {
		lim = &limiter{queues: s.space.Limiter(name), keys: map[string]*line{}}
		s.limiters[name] = lim
	}
	if key == lim.queues.Default {
		lim.base = mirror.ReadStored(kv)
		for _, l := range lim.keys {
			s.touch(l)
		}
	} else if of, ok := lim.queues.ParseKey(key); ok {
		l := lim.keys[of]
		if l == nil {
			l = &line{keys: func() keyspace.Queue { return lim.queues.Key(of) }, limiter: lim}
			lim.keys[of] = l
		}
		s.touch(l)
		if l.change(key, kv, now); l.empty() {
			delete(lim.keys, of)
			delete(s.dirty, l)
		}
	} else if total := lim.queues.Total(); strings.HasPrefix(key, total.Range) {
		if lim.total == nil {
			lim.total = &line{keys: func() keyspace.Queue { return total }, limiter: lim, isTotal: true}
		}
		s.touch(lim.total)
		if lim.total.change(key, kv, now); lim.total.empty() {
			delete(s.dirty, lim.total)
			lim.total = nil
		}
	}
	if lim.base.Rev == 0 && lim.total == nil && len(lim.keys) == 0 {
		delete(s.limiters, name)
	}
}

// sum is the state of a limiter's keys.
type sum struct {
	summary
	inUse, full int // keys
	hasTotal    bool
	overdue     int
}

// sum adds up the keys. Of a limiter with a total, permits are held in the total.
func (lim *limiter) sum(now int64) (out sum) {
	out.hasTotal = lim.total != nil || lim.base.Total
	for _, l := range lim.keys {
		n := l.now
		out.used += n.used
		out.waiting += n.waiting
		out.weight += n.weight
		out.foreign += n.foreign
		if n.oldestWait != 0 && (out.oldestWait == 0 || n.oldestWait < out.oldestWait) {
			out.oldestWait = n.oldestWait
		}
		if n.used > 0 || n.waiting > 0 {
			out.inUse++
			if n.full {
				out.full++
			}
		}
		if out.hasTotal {
			continue
		}
		out.overdue += n.overdue(now)
		if n.oldestHold != 0 && (out.oldestHold == 0 || n.oldestHold < out.oldestHold) {
			out.oldestHold, out.maxHold = n.oldestHold, n.maxHold
		}
	}
	return out
}
