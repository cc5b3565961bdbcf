package schedlock

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// fires are the fire times of a schedule, as processes compare them and operators read them.
type fires struct {
	like    string // the first of a winter and of a summer, for people
	sample  string // a hash of many, over a year and around the changes of the clocks
	crontab string // its text and the name of its zone, or "" if one of these is not known
}

const (
	fireTime = record.Fires
	sampled  = ", sampled "
	parsedOf = ", by "
)

func (f fires) String() string {
	s := fireTime + f.like + sampled + f.sample
	if f.crontab != "" {
		s += parsedOf + f.crontab
	}
	return s
}

// parseFires reads what String has written. ok is false for a period.
func parseFires(s string) (f fires, ok bool) {
	s, ok = strings.CutPrefix(s, fireTime)
	f.like, s, _ = strings.Cut(s, sampled)
	f.sample, f.crontab, _ = strings.Cut(s, parsedOf)
	return f, ok
}

// agree reports whether two processes have the same schedule. Its text and zone say that where both
// have them, since the fire times of one text differ if zone files do.
func (f fires) agree(o fires) bool {
	if f.crontab != "" && o.crontab != "" {
		return f.crontab == o.crontab
	}
	return f.sample == o.sample
}

// print returns a text by which processes compare their fire times. It is "" until the zone is known.
func (tt *timetable) print() string {
	tt.mu.Lock()
	zone, known := tt.zone, tt.printed
	tt.mu.Unlock()
	if zone == nil || known != "" {
		return known
	}
	ask := asking(func(t time.Time) time.Time { return tt.ask(t.In(zone)) })
	home := tt.home(zone)
	f := fires{like: ask.like(), sample: ask.sample(changes(home))}
	if text := tt.textIn(home); text != "" && home.String() != time.Local.String() {
		f.crontab = fmt.Sprintf("%q in %s", text, home)
	}
	known = f.String()
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.zone == zone {
		tt.printed = known
	}
	return known
}

// tenths are the days of a January and of a July from which fire times are compared.
func tenths() []time.Time { return []time.Time{surveyed.AddDate(0, 0, 9), surveyed.AddDate(0, 6, 9)} }

// like returns the first fire time of a January and of a July.
func (ask asking) like() string {
	var text []string
	for _, from := range tenths() {
		if t := ask(from); !t.IsZero() {
			text = append(text, stamp(t))
		}
	}
	return strings.Join(text, " and ")
}

// sample returns a hash of 20 fire times of two days in a row, of the first ones after each hour of these, after each day of
// two weeks, after the first and the last days of months, and of all fire times around the changes of the clocks.
func (ask asking) sample(changes []time.Time) string {
	const row = 20
	h := fnv.New32a()
	for _, from := range tenths() {
		for n, t := 0, ask(from); n < row && !t.IsZero(); n, t = n+1, ask(t) {
			fmt.Fprintln(h, t.UnixMilli())
		}
		for hour := range 24 {
			fmt.Fprintln(h, ask(from.Add(time.Duration(hour)*time.Hour)).UnixMilli())
		}
		for day := range 7 {
			fmt.Fprintln(h, ask(from.AddDate(0, 0, day)).UnixMilli())
		}
	}
	for month := range 12 {
		for _, day := range []int{-4, -1, 0, 1, 10, 14} {
			fmt.Fprintln(h, ask(surveyed.AddDate(0, month, day)).UnixMilli())
		}
	}
	for _, change := range changes {
		for _, i := range slices.Concat(ask.walk(change.Add(-aroundTurn), aroundMonth), ask.walk(change.Add(-beforeChange), aroundChange)) {
			fmt.Fprintln(h, i.from.UnixMilli())
		}
	}
	return fmt.Sprintf("%08x", h.Sum32())
}
