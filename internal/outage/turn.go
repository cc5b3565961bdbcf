package outage

import "time"

// Turn is what a request does that would ask etcd.
type Turn int

// The turns.
const (
	Ask    Turn = iota // it asks, and waits as long as its options say
	Probe              // it asks whether the outage has ended, and waits at most for Every
	Refuse             // it does not ask
)

// known is what a Detector knows when a request comes.
type known struct {
	out      bool      // there is an outage
	now      time.Time // when the request has come
	asked    time.Time // when a request was last to ask
	answered time.Time // when etcd last answered the caller's session
}

// turn returns what the request does. An answer to the session alone does not end an outage: a server may
// renew leases while it answers nothing else. It has a request ask at once.
func (k known) turn() Turn {
	switch {
	case !k.out:
		return Ask
	case k.now.Sub(k.asked) >= Every, k.answered.After(k.asked):
		return Probe
	}
	return Refuse
}

// silent reports whether etcd has answered nothing since a moment: neither the request that asks, whose
// silence began at since, nor another one, of which last was answered last. Latency never passes for an
// outage so: etcd answers others meanwhile.
func silent(since, last, from time.Time) bool { return !since.After(from) && !last.After(from) }
