package check

import "github.com/etcdkit/etcdkit/internal/proof/history"

// askShared begins a call whose permit's key may serve other calls of its client.
func (s *sim) askShared(client *simClient, g *simGate) *simCall {
	c := s.ask(client, g, 1, false)
	c.shared = true
	s.events[len(s.events)-1].Attr = map[string]string{"shared": "yes"}
	return c
}

// serves has the key of a call's permit serve another call of a client.
func (s *sim) serves(c *simCall, client *simClient) *simCall {
	next := s.askShared(client, c.gate)
	next.req = c.req
	s.grant(next)
	return next
}

// passOn is a release after which the key serves another call of the client.
func (s *sim) passOn(c *simCall) *simCall {
	s.check(c)
	s.end(c, history.Released)
	s.ops++
	e := history.Event{Kind: history.KindCall, Client: c.client.name, Op: s.ops, Name: history.Release, Gate: c.gate.name}
	s.emit(e)
	e.Kind, e.Outcome = history.KindReturn, history.OK
	s.emit(e)
	c.state = "done"
	return s.serves(c, c.client)
}

// passesOn reports whether a call's key may serve another one: its holder has not lost it, and has used no
// guard.
func (s *sim) passesOn(c *simCall) bool {
	return c.shared && !c.used && !c.ended && c.req.gone == "" && c.req.lease == c.client.lease
}
