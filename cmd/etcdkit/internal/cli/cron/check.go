package cron

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
)

// checkedLine is a line of a crontab as JSON.
type checkedLine struct {
	Line     int             `json:"line"`
	Name     string          `json:"name"`
	Schedule string          `json:"schedule"`
	Command  string          `json:"command"`
	Next     []time.Time     `json:"next"`
	Changes  []checkedChange `json:"changes"` // of the clock
	Warning  string          `json:"warning,omitempty"`
}

type checkedChange struct {
	At    time.Time   `json:"at"`
	By    int         `json:"forward_minutes"` // below 0 if the clock is set back
	Fires []time.Time `json:"fires"`
}

// shownNext is how many fire times of a line are shown.
const shownNext = 3

// checked returns what is printed of a line.
func checked(j crontab.Job, now time.Time) checkedLine {
	c := checkedLine{Line: j.Line, Name: j.Name, Schedule: j.Schedule.String(), Command: j.Command, Warning: j.Warning,
		Next: []time.Time{}, Changes: []checkedChange{}}
	at := now.In(j.Schedule.Location())
	for len(c.Next) < shownNext {
		if at = j.Schedule.Next(at); at.IsZero() {
			break
		}
		c.Next = append(c.Next, at)
	}
	for _, change := range j.Schedule.Changes(now.In(j.Schedule.Location())) {
		c.Changes = append(c.Changes, checkedChange{change.At, int(change.By.Minutes()), append([]time.Time{}, change.Fires...)})
	}
	return c
}

// fireTimes lists fire times with their day and zone; many are cut.
func fireTimes(all []time.Time) string {
	const most = 8
	var out []string
	day := ""
	for i, at := range all {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(all)-most))
			break
		}
		text := at.Format("15:04 MST")
		if d := at.Format("Mon 2006-01-02"); d != day {
			day, text = d, d+" "+text
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// inUTC converts the times to UTC, in which all JSON has them.
func inUTC(lines []checkedLine, output string) []checkedLine {
	if output != "json" {
		return lines
	}
	for _, l := range lines {
		utc(l.Next)
		for i := range l.Changes {
			l.Changes[i].At = l.Changes[i].At.UTC()
			utc(l.Changes[i].Fires)
		}
	}
	return lines
}

func utc(all []time.Time) {
	for i := range all {
		all[i] = all[i].UTC()
	}
}

// print prints the fire times of each line.
func (v *cronRun) print(jobs []crontab.Job, now time.Time) error {
	lines := make([]checkedLine, 0, len(jobs))
	for _, j := range jobs {
		lines = append(lines, checked(j, now))
	}
	return v.Call.Print(struct {
		output.Form
		Lines []checkedLine `json:"lines"`
	}{output.FormOf("crontab"), inUTC(lines, v.Call.Output)}, func(t *output.Table) {
		for _, l := range lines {
			t.Line(fmt.Sprintf("%s (line %d): %s", l.Name, l.Line, l.Schedule))
			if l.Warning != "" {
				t.Line("  warning: " + l.Warning)
			}
			t.Line("  next: " + fireTimes(l.Next))
			for _, c := range l.Changes {
				direction := "forward"
				if c.By < 0 {
					direction = "back"
				}
				t.Line(fmt.Sprintf("  clock %s by %d minutes on %s: %s", direction, max(c.By, -c.By), c.At.Format("Mon 2006-01-02 15:04 MST"),
					fireTimes(c.Fires)))
			}
		}
	})
}
