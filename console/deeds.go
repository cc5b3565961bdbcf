package console

import (
	"crypto/rand"
	"maps"
	"time"
)

// done says what an action has done.
var done = map[Verb]string{
	SetLimit: "The limit is changed.", RequestStop: "The request was asked to end; a holder keeps its permit until it releases it.",
	Evict: "The request is evicted.", Pause: "The job is paused.", Resume: "The job may start again, from its next tick on.",
	Unlock: "The job is unlocked.", Trigger: "The job was started.", Resolve: "The outcome is recorded.", Delete: "The record is deleted.", EndSession: "The session has ended.",
}

// remembered is for how long a form is not made again, and the page after an action says what it has done.
const remembered = time.Minute

// deed is an action of a form that was sent.
type deed struct {
	verb Verb // "" if it was not made, or not yet
	at   time.Time
}

// begin notes that the form with this key is sent, and returns the key of its deed. It returns false if the form was
// sent before.
func (c *console) begin(form string) (key string, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.deeds, func(_ string, d deed) bool { return time.Since(d.at) > remembered })
	if form == "" {
		form = rand.Text()
	}
	if _, sent := c.deeds[form]; sent {
		return form, false
	}
	c.deeds[form] = deed{at: time.Now()}
	return form, true
}

// unsent forgets that a form was sent, of which nothing was done.
func (c *console) unsent(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deeds, key)
}

// did notes that an action was made. The page after it finds it by its key: a link from elsewhere does not show that
// something was done.
func (c *console) did(key string, v Verb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deeds[key] = deed{v, time.Now()}
}

// done returns what an action has done, in words.
func (c *console) done(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok := c.deeds[key]; ok && time.Since(d.at) <= remembered {
		return done[d.verb]
	}
	return ""
}
