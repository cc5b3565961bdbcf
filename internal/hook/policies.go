package hook

import (
	"time"

	"github.com/etcdkit/etcdkit/observe"
)

// policies are the outage policies of a session's middlewares that decide now.
type policies struct {
	closed bool
	began  []began
}

type began struct {
	observe.OutagePolicy
	at time.Time
}

// with returns what is reported with an event: before the end of the session the end of each policy, since a gauge that
// adds them up would count it for ever, and no policy after that.
func (p *policies) with(e observe.Event, now time.Time) []observe.Event {
	switch e := e.(type) {
	case observe.SessionClosed:
		var all []observe.Event
		for _, b := range p.began {
			b.Active, b.Err, b.Lasted = false, nil, now.Sub(b.at)
			all = append(all, b.OutagePolicy)
		}
		p.closed, p.began = true, nil
		return append(all, e)
	case observe.OutagePolicy:
		if p.closed {
			return nil
		}
		if e.Active {
			p.began = append(p.began, began{e, now})
			break
		}
		for i, b := range p.began {
			if b.Kind == e.Kind && b.Name == e.Name && b.Policy == e.Policy {
				p.began = append(p.began[:i:i], p.began[i+1:]...)
				break
			}
		}
	}
	return []observe.Event{e}
}
