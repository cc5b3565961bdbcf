package check

import (
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// totalOf returns the queue that the requests of a key join next, nil if there is none.
func (s *store) totalOf(gate string) *gate { return s.gates[s.layout.total(gate)] }

// pair finds, for each request of a total that one revision has put, the one at its key, and whether
// that is admitted as of then.
func (s *store) pair(c history.Commit) {
	for _, e := range c.Events {
		t := s.queued(string(e.KV.Key))
		if t == nil || t.token != c.Rev || t.rec.Of == "" {
			continue
		}
		k := s.queued(t.rec.Of)
		if k == nil || s.totalOf(k.gate.name) != t.gate || k.parsed.slot != t.parsed.slot || k.parsed.weight != t.parsed.weight {
			continue
		}
		t.of, k.next = k, t
		t.proven = len(k.fits) > 0 && k.fits[len(k.fits)-1].to == never
	}
}

// queued returns the request of a key that is in a queue, as of the last revision, or nil.
func (s *store) queued(key string) *request {
	g := s.gates[s.layout.parse(strings.TrimPrefix(key, s.prefix)).gate]
	if g == nil {
		return nil
	}
	at := slices.IndexFunc(g.queue, func(r *request) bool { return r.key == key })
	if at < 0 {
		return nil
	}
	return g.queue[at]
}
