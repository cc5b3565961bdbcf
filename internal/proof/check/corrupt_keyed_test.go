package check

import (
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// corruptionsOfKeyed spoil what a history records of a key of a limiter.
var corruptionsOfKeyed = []corruption{
	{"lower the default that was stored", []string{"store/limit", "store/order", "store/early"}, func(s *scene) bool {
		g := s.gates["limiter/l/key/k"]
		if g == nil || g.own.found || !slices.ContainsFunc(g.requests, func(r *request) bool { return s.spanOf[r] != nil }) {
			return false
		}
		return s.rewrite(func(e *history.Event) bool { return strings.HasSuffix(string(e.KV.Key), "limiter/l/default") },
			func(r *record.Limit) { r.Limit = 0 }) > 0
	}},
	{"have a lowered default forget what it replaced", []string{"store/through"}, func(s *scene) bool {
		l, ok := s.keyLimit(func(g *gate, l limit) bool {
			st := g.stateAt(l.rev)
			return l.inForce.rev == l.rev && l.inForce.rev != l.own.rev && l.own.record.Through == 0 && st.held > l.n
		})
		return ok && s.rewrite(func(e *history.Event) bool { return e.Rev == l.rev }, func(r *record.Limit) { r.Settled = true }) > 0
	}},
}

// keyLimit picks what has limited a key of a limiter.
func (s *scene) keyLimit(fits func(g *gate, l limit) bool) (limit, bool) {
	var some []limit
	for _, name := range s.names() {
		g := s.gates[name]
		for _, l := range g.limits {
			if g.base != nil && fits(g, l) {
				some = append(some, l)
			}
		}
	}
	return one(s, some, func(limit) bool { return true })
}

// rewrite changes records of limits.
func (s *scene) rewrite(which func(e *history.Event) bool, change func(r *record.Limit)) int {
	return s.edit(func(e *history.Event) bool { return e.KV != nil && e.Kind == history.KindPut && which(e) }, func(e *history.Event) {
		r, _ := record.DecodeLimit([]byte(e.KV.Value))
		change(&r)
		kv := *e.KV
		kv.Value = history.Bytes(r.Encode())
		e.KV = &kv
	})
}
