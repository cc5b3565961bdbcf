package check

import "github.com/etcdkit/etcdkit/internal/proof/history"

// shares reports whether the call of a belief may have a key that serves other calls of its process
// before and after it.
func (v *view) shares(s *history.Span) bool {
	op := v.opByTag[history.Tag(s.Granted.Client, s.Granted.Op)]
	return op != nil && op.Call.Attr["shared"] != ""
}

// twice: a key serves one call after the other. Beliefs that were never confirmed prove nothing.
func (v *view) twice() (f []Finding) {
	for _, name := range v.names() {
		for _, r := range v.gates[name].requests {
			var last *history.Span // that believed for the longest
			for _, s := range v.sharers[r] {
				if !s.Confirmed {
					continue
				}
				if last != nil && last.To > s.From {
					f = append(f, at(r.token, bad("twice", name, s.From, "%s and %s believed in token %d at once, for %s at least", holder(last), holder(s), r.token, ms(min(last.To, s.To)-s.From))))
				}
				if last == nil || s.To > last.To {
					last = s
				}
			}
		}
	}
	return f
}

// believedAtEnd reports whether one of the calls that shared a key still believed in it when it was
// deleted.
func (v *view) believedAtEnd(r *request) bool {
	for _, s := range v.sharers[r] {
		e := s.Ended
		switch {
		case s.From > r.goneAt: // checker belief judges that
		case e == nil, e.At > r.goneAt && (e.Until == 0 || e.Until > addTime(r.goneAt, slip)) && (s.Confirmed || e.Cause != history.HeldTooLong):
			return true
		}
	}
	return false
}

// shown: what a call has used a token or a guard for may still be on its way when the call is over. So
// no other call is granted the key afterwards.
func (v *view) shown(effects []history.Event) (f []Finding) {
	for _, e := range effects {
		for _, s := range v.sharers[v.byToken[id{e.Gate, e.Token}]] {
			if s.From > e.At {
				f = append(f, bad("shown", e.Gate, s.From, "%s was granted token %d, which %s had used", holder(s), e.Token, e.Client))
				break
			}
		}
	}
	return f
}
