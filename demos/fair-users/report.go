package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// outcome is the result of a run, and its last line of output.
type outcome struct {
	OK         bool     `json:"ok"`
	Front      string   `json:"reverse_proxy,omitempty"` // if it is a program of its own
	Users      int      `json:"users"`
	AtOnce     int      `json:"greedy_requests"`
	Total      int      `json:"total"`
	PerUser    int      `json:"per_user"`
	OneQueue   *shared  `json:"one_queue,omitempty"`
	ByUser     *shared  `json:"by_user,omitempty"`
	Steps      []step   `json:"steps"`
	Violations []string `json:"violations"`
	Elapsed    float64  `json:"elapsed_s"`
}

// step adds a step. took is printed if it is not 0.
func (o *outcome) step(what, got, want string, took time.Duration) {
	s := step{What: what, Got: got, Want: want}
	if took > 0 {
		s.After = took.Round(time.Millisecond).String()
	}
	o.Steps = append(o.Steps, s)
}

// judge compares the outcome with what is promised.
func (o *outcome) judge() {
	wrong := func(format string, args ...any) { o.Violations = append(o.Violations, fmt.Sprintf(format, args...)) }
	for _, way := range o.ways() {
		if way.Peak > o.Total {
			wrong("%s: %d requests ran at the same time, the total is %d", way.name, way.Peak, o.Total)
		}
		if way.Failed > 0 {
			wrong("%s: %d requests failed", way.name, way.Failed)
		}
		for _, u := range way.all() {
			if u.Served == 0 {
				wrong("%s: no request of %s was served", way.name, u.User)
			}
			if u.Peak > way.limit {
				wrong("%s: %d requests of %s ran at the same time, the limit is %d", way.name, u.Peak, u.User, way.limit)
			}
		}
	}
	if o.OneQueue != nil && o.ByUser != nil {
		o.compare(wrong)
	}
	for _, s := range o.Steps {
		if s.Got != s.Want {
			wrong("%s: %s, want %s", s.What, s.Got, s.Want)
		}
	}
	o.OK = len(o.Violations) == 0
}

// compare compares the waits in the two ways. The bounds have room for processes that get no time to run
// for a second: the waits with a limit for each user are a hundredth of what is allowed here.
func (o *outcome) compare(wrong func(format string, args ...any)) {
	if o.OneQueue.Greedy.Peak <= o.PerUser {
		wrong("one queue: the greedy user had %d requests at the same time, no more than its later limit: the demo shows nothing", o.OneQueue.Greedy.Peak)
	}
	if o.ByUser.P50 >= o.OneQueue.P50/2 {
		wrong("a limit for each user: the median of the users' waits is %.3f s, want less than half of that with one queue of %.3f s", o.ByUser.P50, o.OneQueue.P50)
	}
	if o.ByUser.P95 >= o.OneQueue.P50 {
		wrong("a limit for each user: the 95th percentile of the users' waits is %.3f s, want less than the median with one queue of %.3f s", o.ByUser.P95, o.OneQueue.P50)
	}
}

// way is one of the two ways, with the limit of a user.
type way struct {
	name  string
	limit int
	*shared
}

// ways returns the ways that were run.
func (o *outcome) ways() (all []way) {
	for _, w := range []way{{"one queue for all", o.Total, o.OneQueue}, {fmt.Sprintf("a limit of %d for each", o.PerUser), o.PerUser, o.ByUser}} {
		if w.shared != nil {
			all = append(all, w)
		}
	}
	return all
}

// all returns the greedy user and the others.
func (s *shared) all() []usage { return append([]usage{s.Greedy}, s.Users...) }

// barWidth is the width of the longest bar of the picture.
const barWidth = 30

func (o *outcome) Passed() bool { return o.OK }

// Write prints the picture, the tables and, unless out is a terminal, the line of JSON.
func (o *outcome) Write(out io.Writer) {
	fmt.Fprintf(out, "%d users and a greedy one, who sends %d requests at a time; the model serves %d at a time\n", o.Users, o.AtOnce, o.Total)
	if o.Front != "" {
		fmt.Fprintf(out, "the reverse proxy is %s\n", o.Front)
	}
	fmt.Fprintln(out)
	o.writeWaits(out)
	for _, s := range o.Steps {
		got := s.Got
		if s.After != "" {
			got += " after " + s.After
		}
		if s.Got != s.Want {
			got += ", want " + s.Want
		}
		fmt.Fprintf(out, "%-80s %s\n", s.What, got)
	}
	program.WriteVerdict(out, o.Elapsed, o.Violations, "Every promise was kept: the greedy user waits for its own requests, and the others do not.")
	child.WriteJSON(out, o)
}

// writeWaits prints the picture, and a table of the two ways.
func (o *outcome) writeWaits(out io.Writer) {
	ways := o.ways()
	if len(ways) == 0 {
		return
	}
	most := 0.001
	head := fmt.Sprintf("%-9s", "p95 wait")
	for _, w := range ways {
		head += fmt.Sprintf(" %-*s", barWidth+9, w.name)
		for _, u := range w.all() {
			most = max(most, u.P95)
		}
	}
	fmt.Fprintln(out, strings.TrimRight(head, " "))
	for i, u := range ways[0].all() {
		line := fmt.Sprintf("%-9s", u.User)
		for _, w := range ways {
			p95 := w.all()[i].P95
			line += fmt.Sprintf(" %6.3f s %-*s", p95, barWidth, strings.Repeat("█", int(p95/most*barWidth+0.5)))
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(out, "\n%-21s %5s %13s %7s %7s %8s %14s %7s %8s\n", "", "peak", "greedy: peak", "served", "p50", "p95", "users: served", "p50", "p95")
	for _, w := range ways {
		served := 0
		for _, u := range w.Users {
			served += u.Served
		}
		fmt.Fprintf(out, "%-21s %5d %13d %7d %5.3f s %6.3f s %14d %5.3f s %6.3f s\n", w.name, w.Peak, w.Greedy.Peak, w.Greedy.Served, w.Greedy.P50, w.Greedy.P95, served, w.P50, w.P95)
	}
	fmt.Fprintln(out)
}
