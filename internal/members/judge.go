package members

import (
	"slices"
	"time"
)

const (
	// behind is how much later than another member's a member's answer must be so that it hangs. Over the
	// network between two continents an answer takes as long, with a new connection three times that.
	behind = 200 * time.Millisecond
	// behindMost bounds how much later it may be after it was left out and has answered soon.
	behindMost = time.Second
	// slower is how many times as long as those of other members a member's answer may take. Where all members are
	// busy, as when a whole fleet logs in at once, even the first answer takes long. slowMost bounds that.
	slower, slowMost = 4, 5 * time.Second
	// soon is the time between the first rounds of probes, and later the time between the further ones.
	soon, later = 250 * time.Millisecond, time.Second
	// soonRounds is for how many rounds a new leader is awaited: etcd elects one within two seconds.
	soonRounds = 8
	// tardy is how late a timer must be so that this process was paused, or starved.
	tardy = 100 * time.Millisecond
	// calm is how long nothing must have been late until all goes by the caller's client again.
	calm = 3 * time.Second
	// broken is for how long a member remains left out whose connection breaks again and again. The
	// caller's client has noticed the same by then, with the keepalives that the documentation asks for.
	broken = 20 * time.Second
)

// judge decides which members of etcd hang. It has no clock and does no I/O. Members are their endpoints.
type judge struct {
	members map[string]*member
	rounds  int       // of probes since calls are late
	round   time.Time // when the last one was sent
	busy    time.Time // when a call was last late, or a member left out
	paused  time.Time // when this process was last found to have been paused
	quiet   time.Duration
}

// member is what is known of one member.
type member struct {
	asked  time.Time     // when the probe under way was sent; zero if there is none
	beaten time.Time     // when another member first answered a probe that was sent no earlier
	took   time.Duration // how long that answer took
	good   bool          // the last probe that has ended was answered, and no call on its connection has failed since
	hangs  bool
	since  time.Time     // when it was left out
	spare  time.Duration // how much later than behind its answer may be, since it is only slow
}

// orders are what a decision asks for.
type orders struct {
	probe   []string  // send each a probe
	forget  []string  // close the connections
	hang    []string  // those that have just been left out
	leave   bool      // all is calm: go by the caller's client again
	decides time.Time // when to decide again, if nothing happens before
}

func newJudge(now time.Time, quiet time.Duration) *judge {
	return &judge{members: map[string]*member{}, busy: now, quiet: quiet}
}

// pause records that this process did not run for a while. What came meanwhile is to be read before
// anything is decided by the lack of it.
func (j *judge) pause(now time.Time) { j.paused = now }

// answered records the answer to a member's probe. It returns whether that brings the member back.
func (j *judge) answered(endpoint string, at time.Time) (back bool) {
	m := j.members[endpoint]
	if m == nil || m.asked.IsZero() {
		return false
	}
	sent := m.asked
	if j.paused.After(sent) {
		sent = j.paused
	}
	took := at.Sub(sent)
	for name, other := range j.members {
		switch {
		case name == endpoint || other.asked.IsZero() || m.asked.Before(other.asked):
		case other.beaten.IsZero():
			other.beaten, other.took = at, took
		default:
			other.took = (other.took + took) / 2
		}
	}
	spare := m.spare
	if back = m.hangs; back && at.Sub(m.since) < behindMost {
		spare = min(2*spare+behind, behindMost-behind)
	}
	*m = member{good: true, spare: spare}
	return back
}

// failed records that the connection to a member is broken, or that a probe could not be sent. That is no
// proof that it hangs, as a member that is down is avoided by the caller's client too; nor does it bring
// back a member soon.
func (j *judge) failed(endpoint string, at time.Time) {
	m := j.members[endpoint]
	if m == nil {
		return
	}
	m.asked, m.beaten, m.good = time.Time{}, time.Time{}, false
	if m.hangs {
		m.hangs, j.busy = at.Sub(m.since) < broken, at
	}
}

// hangs reports whether a member is left out, or any if endpoint is empty. None is if no other could take
// its calls.
func (j *judge) hangs(endpoint string) bool {
	if len(j.goodOnes()) == 0 {
		return false
	}
	for name, m := range j.members {
		if m.hangs && (endpoint == "" || name == endpoint) {
			return true
		}
	}
	return false
}

// goodOnes returns the members that take calls while another is left out, in order.
func (j *judge) goodOnes() (good []string) {
	for name, m := range j.members {
		if m.good && !m.hangs {
			good = append(good, name)
		}
	}
	slices.Sort(good)
	return good
}

// decide says what to do now. late reports whether a call is late; endpoints are the members, as the
// caller's client has them now.
func (j *judge) decide(now time.Time, late bool, endpoints []string) (o orders) {
	for name, m := range j.members {
		if m.asked.IsZero() || m.beaten.IsZero() || m.hangs {
			continue
		}
		since := m.beaten
		if j.paused.After(since) {
			since = j.paused
		}
		if limit := m.limit(); now.Sub(since) >= limit {
			m.hangs, m.good, m.since = true, false, now
			o.hang = append(o.hang, name)
		} else {
			o.by(since.Add(limit))
		}
	}
	if late || j.hangs("") {
		j.busy = now
	}
	j.send(now, late, endpoints, &o)
	if calm := j.busy.Add(calm + j.quiet); !late && !j.hangs("") {
		if o.leave = !now.Before(calm); !o.leave {
			o.by(calm)
		}
	}
	return o
}

// limit is how much later than another member's the member's answer may be.
func (m *member) limit() time.Duration {
	return max(behind, min((slower-1)*m.took, slowMost)) + m.spare
}

// send decides on the next round of probes. There are rounds while calls are late. Otherwise only those
// members are probed again that are left out and whose probe has failed.
func (j *judge) send(now time.Time, late bool, endpoints []string, o *orders) {
	wanting := late
	for _, m := range j.members {
		wanting = wanting || m.hangs && m.asked.IsZero()
	}
	if !late {
		j.rounds = 0
	}
	if !wanting {
		return
	}
	wait := later
	if late && j.rounds < soonRounds {
		wait = soon
	}
	if next := j.round.Add(wait); now.Before(next) {
		o.by(next)
		return
	}
	for name := range j.members {
		if !slices.Contains(endpoints, name) {
			delete(j.members, name)
			o.forget = append(o.forget, name)
		}
	}
	for _, name := range endpoints {
		m := j.members[name]
		if m == nil {
			m = &member{}
			j.members[name] = m
		}
		if m.asked.IsZero() && (late || m.hangs) {
			m.asked, m.beaten = now, time.Time{}
			o.probe = append(o.probe, name)
		}
	}
	j.round = now
	j.rounds++
	o.by(now.Add(wait))
}

// by has the next decision made at a time, if none is due before.
func (o *orders) by(t time.Time) {
	if o.decides.IsZero() || t.Before(o.decides) {
		o.decides = t
	}
}
