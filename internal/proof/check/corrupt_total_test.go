package check

import "github.com/etcdkit/etcdkit/internal/proof/history"

// corruptionsOfTotals spoil what a history records of a limiter with a total.
var corruptionsOfTotals = []corruption{
	{"leave the request of the total behind", []string{"store/ghost"}, func(s *scene) bool {
		t, ok := s.joined(func(k, t *request) bool { return t.gone != never && t.gone == k.gone && s.alone(t) })
		return ok && s.drop(tapEvent(t, history.KindDelete)) > 0
	}},
	{"leave the request at the key behind", []string{"store/alone"}, func(s *scene) bool {
		t, ok := s.joined(func(k, t *request) bool { return t.gone != never && t.gone == k.gone && s.alone(k) })
		return ok && s.drop(tapEvent(t.of, history.KindDelete)) > 0
	}},
	{"put a request of the total before it is admitted at its key", []string{"store/proof"}, func(s *scene) bool {
		t, ok := s.joined(func(k, t *request) bool { return k.fits[0].from > k.token })
		if !ok {
			return false
		}
		return s.edit(func(e *history.Event) bool {
			return e.KV != nil && string(e.KV.Key) == t.key && e.KV.Create == t.token
		}, func(e *history.Event) {
			kv := *e.KV
			kv.Create, e.KV = t.of.token, &kv
			if e.Rev == t.token {
				e.Rev = t.of.token
			}
		}) > 0
	}},
	{"confuse the tokens of both levels", []string{"store/token"}, func(s *scene) bool {
		t, ok := s.joined(func(k, t *request) bool { return k.token != t.token && s.spanOf[t] != nil })
		return ok && s.edit(of(s.spanOf[t].Granted), func(e *history.Event) { e.Token = t.of.token }) > 0
	}},
}

// hasTotal reports whether a request is one of a limiter with a total.
func (s *scene) hasTotal(r *request) bool {
	return isTotal(r.gate.name) || s.totalOf(r.gate.name) != nil
}

// requestOf returns the request by which etcd guards an effect.
func (s *scene) requestOf(e history.Event) *request { return s.byToken[s.ids(e.Gate, e.Token)[0]] }

// joined picks a request of a total that no nemesis has struck, nor the one at its key.
func (s *scene) joined(fits func(k, t *request) bool) (*request, bool) {
	return one(s, s.requests(), func(t *request) bool {
		return t.of != nil && s.struck(t) == nil && s.struck(t.of) == nil && !s.named(t.key) && !s.named(t.of.key) && fits(t.of, t)
	})
}
