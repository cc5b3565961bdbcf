package doctor

import (
	"cmp"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// beat is how often a process that runs jobs writes its time.
const beat = time.Minute

// tolerance is the difference of two clocks that is no finding: some of it is the way to etcd.
const tolerance = 2 * time.Second

const skewAdvice = "Limits do not depend on clocks, but fire times of jobs and shown ages do. Check time synchronization on both machines."

const unknownAdvice = "A clock that is not known may differ: column Clock of the console's page sessions has it once its process has written."

// Clock judges the clock of one process. A difference that was measured is that to what has just arrived: the way is part of
// it, so a clock that is a little behind may be right. Of a process that writes its time once a minute it is known, without that, how far it is behind.
func Clock(c fleet.Clock, now time.Time) []Finding {
	by, lead := cmp.Or(c.Owner, "-"), time.Duration(c.Lead)*time.Millisecond
	behind := now.Sub(time.UnixMilli(c.Beat)) - beat
	switch {
	case c.Measured && lead > tolerance:
		return One(Warn, skewAdvice, "the clock of %s is ahead of this machine's by %s or more", by, brief(lead))
	case c.Measured && lead < -10*tolerance:
		return One(Warn, skewAdvice, "the clock of %s is behind this machine's by %s", by, brief(-lead))
	case c.Measured && lead < -tolerance: // as EtcdkitClocksDiffer
		return One(Note, skewAdvice, "the clock of %s is behind this machine's by %s, or etcd is slow", by, brief(-lead))
	case !c.Measured && c.Beat > 0 && behind > 10*tolerance:
		return One(Warn, skewAdvice, "the clock of %s is behind this machine's by %s or more, or it could not write for that long", by, brief(behind))
	}
	return nil
}

// Clocks judges the clocks of all processes. looked is for how long it was awaited that they write something: the clock of
// one that has written nothing is not known, which is no agreement.
func Clocks(all []fleet.Clock, now time.Time, looked string) (found []Finding) {
	known := 0
	for _, c := range all {
		if c.Measured {
			known++
		}
		found = append(found, Clock(c, now)...)
	}
	rest := len(all) - known
	if rest > 0 {
		return append(found, One(Note, unknownAdvice, "%s not known: of %s, %d wrote nothing to compare %s", clocks(rest), count(len(all), "session", "sessions"), rest, looked)...)
	}
	if len(all) == 0 {
		return One(OK, "", "no other session, whose clock could be compared")
	}
	if found == nil {
		return One(OK, "", "no clock differs by more than %v, of %s", tolerance, count(known, "session", "sessions"))
	}
	return found
}

func clocks(n int) string {
	if n == 1 {
		return "1 clock is"
	}
	return fmt.Sprintf("%d clocks are", n)
}
