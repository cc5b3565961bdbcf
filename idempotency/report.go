package idempotency

import "go.uber.org/zap"

// tookOver counts and logs an attempt after a lost one: effects of the lost one outside etcd may
// happen a second time.
func (c *call) tookOver(lost state, number int) {
	c.store.count.add(&c.store.count.TakenOver, 1)
	c.store.log.Warn("an attempt was lost: the request runs again", c.fields(lost, number)...)
}

// unknown counts, logs and returns the refusal of a request whose attempt was lost.
func (c *call) unknown(lost state) error {
	c.store.count.add(&c.store.count.Unknown, 1)
	c.store.log.Warn("an attempt was lost: the request is refused until Resolve", c.fields(lost, lost.rec.Number)...)
	return &UnknownError{Key: c.key, Ref: Ref(c.entry.Ref), Owner: lost.rec.Owner, Attempt: lost.rec.Number}
}

// fields name a request in logs. The key's ID is a secret, and not among them.
func (c *call) fields(lost state, number int) []zap.Field {
	return []zap.Field{
		zap.String("scope", c.key.Scope), zap.String("op", c.key.Op), zap.String("ref", c.entry.Ref),
		zap.Int("attempt", number), zap.String("lost", lost.rec.Owner),
	}
}
