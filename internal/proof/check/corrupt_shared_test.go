package check

import "github.com/etcdkit/etcdkit/internal/proof/history"

// corruptionsOfShared spoil what a history records of keys that serve several calls.
var corruptionsOfShared = []corruption{
	{"hold a shared key into the next call", []string{"belief/twice"}, func(s *scene) bool {
		all, ok := s.shared()
		return ok && s.believes(all[0], all[1].From+1)
	}},
	{"use the guard of a key that serves on", []string{"fence/shown"}, func(s *scene) bool {
		all, ok := s.shared()
		if ok {
			e := all[0].Granted
			e.Kind, e.At, e.Outcome = history.KindEffect, all[0].To, history.Unknown
			e.Attr = map[string]string{"register": "r", "mode": history.ModeGuard, "value": "never written"}
			s.events = append(s.events, e)
		}
		return ok
	}},
	{"drop the release of a shared key", []string{"store/delete"}, func(s *scene) bool {
		r, ok := one(s, s.requests(), func(r *request) bool {
			ops := s.releases[id{r.gate.name, r.token}]
			return len(s.sharers[r]) > 1 && r.how == plain && s.struck(r) == nil && s.struckLease(r.lease, r.gone) == nil && len(ops) == 1
		})
		if !ok {
			return false
		}
		all := s.sharers[r]
		last := of(all[len(all)-1].Granted)
		s.drop(of(s.releases[id{r.gate.name, r.token}][0].Call))
		return s.drop(func(e *history.Event) bool { return e.Kind == history.KindEnded && last(e) }) > 0
	}},
}

// shared picks a key that has served several calls.
func (s *scene) shared() ([]*history.Span, bool) {
	r, ok := one(s, s.requests(), func(r *request) bool { return len(s.sharers[r]) > 1 && s.sharers[r][0].Ended != nil })
	return s.sharers[r], ok
}
