package crons

import (
	"crypto/sha256"
	_ "embed" // the plans
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Begin and End bound the year of the plans. It is past, so that no zone's rules for it change any more.
var (
	Begin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	End   = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Zones are where clocks are never changed (UTC, Kathmandu, Kolkata), by an hour at night or at midnight, by half an hour
// (Lord Howe), by two (Troll), for a month (Casablanca), from the south, and by halves and quarters of an hour from UTC.
var Zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Havana", "America/Santiago", "America/Asuncion",
	"Australia/Lord_Howe", "Pacific/Chatham", "Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll", "Asia/Beirut",
	"Asia/Tehran", "Asia/Kathmandu", "Asia/Kolkata",
}

//go:embed cronie/lines.txt
var lines string

//go:embed plans.txt
var plans string

// Lines returns the lines, without their commands.
func Lines() (all []string) {
	for line := range strings.Lines(lines) {
		if spec, _, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(line, "#") {
			all = append(all, spec)
		}
	}
	return all
}

// before and after are what the window around a change of the clock has of it: a week later there may be a time that is left
// out, too.
const (
	before = 6 * time.Hour
	after  = 8 * 24 * time.Hour
)

// Window is the time around a change of a zone's clock.
type Window struct {
	Change, From, To time.Time
	By               time.Duration // what the clock is set forward by; negative if back
}

// has reports whether a time is in the window.
func (w Window) has(at time.Time) bool { return !at.Before(w.From) && at.Before(w.To) }

// Repeated reports whether the clock shows a time for the second time.
func (w Window) Repeated(at time.Time) bool {
	return w.By < 0 && !at.Before(w.Change) && at.Before(w.Change.Add(-w.By))
}

// Windows returns those of the year in a zone.
func Windows(loc *time.Location) (all []Window) {
	_, offset := Begin.In(loc).Zone()
	for at := Begin; at.Before(End); at = at.Add(15 * time.Minute) {
		_, shown := at.In(loc).Zone()
		if shown != offset {
			all = append(all, Window{at, at.Add(-before), at.Add(after), time.Duration(shown-offset) * time.Second})
			offset = shown
		}
	}
	return all
}

// Plan is a year of fire times of a line in a zone: those around the changes of the clock, and how many others there are, with
// a digest.
type Plan struct {
	Zone, Line string
	Around     [][]time.Time // in the windows of the zone
	Others     int
	Digest     string
}

// NewPlan returns the plan of fire times, which are in their order.
func NewPlan(zone, line string, windows []Window, fires []time.Time) Plan {
	p := Plan{Zone: zone, Line: line, Around: make([][]time.Time, len(windows))}
	hash, text := sha256.New(), []byte(nil)
	for _, at := range fires {
		if i := slices.IndexFunc(windows, func(w Window) bool { return w.has(at) }); i >= 0 {
			p.Around[i] = append(p.Around[i], at.UTC())
			continue
		}
		p.Others++
		text = append(strconv.AppendInt(text[:0], at.Unix(), 10), '\n')
		hash.Write(text)
	}
	p.Digest = hex.EncodeToString(hash.Sum(nil)[:8])
	return p
}

// String returns the plan as a line of text: the fire times of a window are the minutes from its begin to the first one, and
// from each to the next, as in 30 60*8.
func (p Plan) String(windows []Window) string {
	parts := []string{p.Zone, p.Line, strconv.Itoa(p.Others), p.Digest}
	for i, w := range windows {
		var gaps []string
		last, gap, n := w.From, 0, 0
		note := func() {
			switch {
			case n == 1:
				gaps = append(gaps, strconv.Itoa(gap))
			case n > 1:
				gaps = append(gaps, fmt.Sprintf("%d*%d", gap, n))
			}
		}
		for _, at := range p.Around[i] {
			if next := int(at.Sub(last) / time.Minute); next == gap {
				n++
			} else {
				note()
				gap, n = next, 1
			}
			last = at
		}
		note()
		parts = append(parts, fmt.Sprintf("%s: %s", w.Change.Format("0102 15:04"), strings.Join(gaps, " ")))
	}
	return strings.Join(parts, "\t")
}

// parse reads what String has written.
func parse(text string, windows []Window) (p Plan, err error) {
	parts := strings.Split(strings.TrimRight(text, "\n"), "\t")
	if len(parts) != 4+len(windows) {
		return p, fmt.Errorf("%q has not the changes of the zone: %d", text, len(windows))
	}
	p = Plan{Zone: parts[0], Line: parts[1], Digest: parts[3], Around: make([][]time.Time, len(windows))}
	p.Others, err = strconv.Atoi(parts[2])
	for i, w := range windows {
		gaps, ok := strings.CutPrefix(parts[4+i], w.Change.Format("0102 15:04")+":")
		if !ok {
			return p, fmt.Errorf("%q: the zone changes at %v", text, w.Change)
		}
		at := w.From
		for gap := range strings.FieldsSeq(gaps) {
			minutes, times, many := strings.Cut(gap, "*")
			n := 1
			if many {
				if n, err = strconv.Atoi(times); err != nil {
					return p, err
				}
			}
			d, err := strconv.Atoi(minutes)
			if err != nil {
				return p, err
			}
			for range n {
				at = at.Add(time.Duration(d) * time.Minute)
				p.Around[i] = append(p.Around[i], at)
			}
		}
	}
	return p, err
}

// Plans returns the plans of a zone by cronie, in the order of Lines.
func Plans(zone string, windows []Window) (all []Plan, err error) {
	for text := range strings.Lines(plans) {
		if !strings.HasPrefix(text, zone+"\t") {
			continue
		}
		p, err := parse(text, windows)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Year returns the fire times of a schedule in the year.
func Year(next func(time.Time) time.Time, loc *time.Location) (fires []time.Time) {
	for at := next(Begin.Add(-time.Second).In(loc)); !at.IsZero() && at.Before(End); at = next(at) {
		fires = append(fires, at)
	}
	return fires
}

// Without returns what all has and other has not.
func Without(all, other []time.Time) (rest []time.Time) {
	has := map[int64]bool{}
	for _, at := range other {
		has[at.Unix()] = true
	}
	for _, at := range all {
		if !has[at.Unix()] {
			rest = append(rest, at)
		}
	}
	return rest
}
