package schedlock

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// fingerprint returns the settings on which all users of a job in this process must agree.
func (s settings) fingerprint() string {
	text := fmt.Sprintf("AtMost %v, AtLeast %v, Retries %d", s.atMost, s.atLeast, s.retries)
	if s.every > 0 {
		text += period + s.every.String()
	}
	return text
}

// shared returns the settings on which all live processes must agree, with the fire times if they
// are known. These have the place of the period. An older release that does not know fire times
// reads them as a period and agrees, since its Jobs at times of day have no period.
func (r request) shared() string {
	if r.every == 0 && r.fires != "" {
		return r.fingerprint() + period + r.fires
	}
	return r.fingerprint()
}

const (
	period   = record.Period
	fireTime = "fire time like "
)

// agree reports whether two users of a job have the same settings, and returns the more complete
// text: a caller that passes a tick has no period. theirs is "" if there are none.
func agree(mine, theirs string) (both string, ok bool) {
	a, m, _ := strings.Cut(mine, period)
	b, t, _ := strings.Cut(theirs, period)
	return max(mine, theirs), theirs == "" || a == b && (m == t || m == "" || t == "")
}

// reschedules reports whether two settings differ only in their fire times: the process that has
// stored one may replace it with the other, for instance when it has read its configuration again.
func reschedules(mine, theirs string) bool {
	a, m, _ := strings.Cut(mine, period)
	b, t, _ := strings.Cut(theirs, period)
	return a == b && strings.HasPrefix(m, fireTime) && strings.HasPrefix(t, fireTime)
}

// print returns a text by which processes compare their fire times: the first of a winter and of a
// summer, for operators, and a hash of some more. It is "" until the zone is known.
func (tt *timetable) print() string {
	tt.mu.Lock()
	zone, known := tt.zone, tt.printed
	tt.mu.Unlock()
	if zone == nil || known != "" {
		return known
	}
	const each = 20
	h := fnv.New32a()
	var text []string
	for _, month := range []time.Month{time.January, time.July} {
		t := time.Date(2024, month, 10, 0, 0, 0, 0, time.UTC).In(zone)
		for n := range each {
			if t = tt.schedule.Next(t); t.IsZero() {
				break
			}
			if n == 0 {
				text = append(text, stamp(t))
			}
			fmt.Fprintln(h, t.UnixMilli())
		}
	}
	known = fmt.Sprintf("%s%s (%08x)", fireTime, strings.Join(text, " and "), h.Sum32())
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.zone == zone {
		tt.printed = known
	}
	return known
}
