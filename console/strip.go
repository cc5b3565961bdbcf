package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// strip is a picture of a job's recorded runs of the last week, with a lane for each process.
type strip struct {
	From, To time.Time
	Lanes    []lane
	More     int // processes that have no lane
}

// lane has the runs of one process.
type lane struct {
	Owner, Description string
	Runs               []stripRun
}

// stripRun is one run in a box of 1,000 by 20.
type stripRun struct {
	State, Title        string
	X, Width, Y, Height string
}

// Bounds of a strip.
const (
	stripWeek = 7 * 24 * time.Hour
	mostLanes = 8
	lateStart = 10 * time.Second // behind its tick
	thinnest  = 3.0
)

// stripOf returns the picture of runs, the latest of which is first, or nil if there are fewer than two.
func stripOf(runs []runRow, now time.Time) *strip {
	s := &strip{From: now, To: now}
	var shown []runRow
	for _, r := range runs {
		if at := r.Start; !at.IsZero() && !at.After(now) && now.Sub(at) <= stripWeek {
			shown = append(shown, r)
			if at.Before(s.From) {
				s.From = at
			}
		}
	}
	if len(shown) < 2 {
		return nil
	}
	// The edges move on by steps, so that an unchanged job is an unchanged page.
	step := max(time.Second, now.Sub(s.From)/100).Truncate(time.Second)
	s.From, s.To = s.From.Add(-step).Truncate(time.Second), now.Truncate(step).Add(step)
	more := map[string]bool{}
	for _, r := range shown {
		i := slices.IndexFunc(s.Lanes, func(l lane) bool { return l.Owner == r.Owner })
		if i < 0 && len(s.Lanes) == mostLanes {
			more[r.Owner] = true
			continue
		}
		if i < 0 {
			i = len(s.Lanes)
			s.Lanes = append(s.Lanes, lane{Owner: r.Owner})
		}
		s.Lanes[i].Runs = append(s.Lanes[i].Runs, s.drawn(r))
	}
	s.More = len(more)
	slices.SortFunc(s.Lanes, func(a, b lane) int { return strings.Compare(a.Owner, b.Owner) })
	for i, l := range s.Lanes {
		bad := 0
		for _, r := range l.Runs {
			if r.State == record.RunFailed || r.State == "lost" {
				bad++
			}
		}
		s.Lanes[i].Description = fmt.Sprintf("%s: %s, of which %d have failed or were lost", text(l.Owner), count(len(l.Runs), "run", "runs"), bad)
	}
	return s
}

// drawn returns a run in its box: the worse it is, the higher.
func (s *strip) drawn(r runRow) stripRun {
	end := r.end
	if end.IsZero() || end.After(s.To) {
		end = r.Start
		if r.State == running {
			end = s.To
		}
	}
	at := func(t time.Time) float64 { return 1000 * float64(t.Sub(s.From)) / float64(max(1, s.To.Sub(s.From))) }
	x := at(r.Start)
	width := max(thinnest, at(end)-x)
	out := stripRun{State: r.State, X: coordinate(min(x, 1000-thinnest)), Width: coordinate(width), Y: "13", Height: "7"}
	late := r.Start.Sub(r.Tick)
	switch {
	case r.Bad:
		out.Y, out.Height = "0", "20"
	case late >= lateStart:
		out.State, out.Y, out.Height = "late", "7", "13"
	case r.State != record.RunDone && r.State != running:
		out.State = record.RunDone // of a later release
	}
	out.Title = fmt.Sprintf("%s UTC: %s, took %s", r.Tick.UTC().Format(time.DateTime), text(r.State), r.Took)
	if late >= lateStart {
		out.Title += ", started " + lasted(late) + " behind its tick"
	}
	return out
}
