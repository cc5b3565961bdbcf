package console

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// jobRow is a job in the list.
type jobRow struct {
	Name, State, Outcome, Owner string
	Tick                        time.Time
	Bad                         bool
	Lost, Failed                int
}

// jobList is the list of jobs.
type jobList struct {
	Total int
	Jobs  []jobRow
	pager
}

// Pager returns the place in the table.
func (l jobList) Pager() pager { return l.pager }

// locker returns the Locker of the console. There is one, made on first use: each has watches, and
// publishes the time of its process, until the session ends.
func (c *console) locker() (*schedlock.Locker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user == nil {
		l, err := schedlock.New(c.sess, nil)
		if err != nil {
			return nil, err
		}
		c.user = l
	}
	return c.user, nil
}

func readJobs(q request) (any, time.Time, error) {
	rows, asOf, err := read(q, "jobs", q.console.jobs)
	if err != nil {
		return nil, asOf, err
	}
	l := jobList{Total: len(rows)}
	l.Jobs, l.pager = paged(q, rows)
	return l, asOf, nil
}

func (c *console) jobs(ctx context.Context) (rows []jobRow, err error) {
	l, err := c.locker()
	if err != nil {
		return nil, err
	}
	names, err := l.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names[:min(mostRead, len(names))] {
		st, records, err := jobOf(ctx, l, name)
		if errors.Is(err, schedlock.ErrUnknownJob) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		row := jobRow{Name: name, State: stateOf(st)}
		if st.Last != nil {
			row.Tick, row.Outcome, row.Owner, row.Bad = st.Last.Tick, string(st.Last.State), st.Last.Owner, bad(st.Last.State)
		}
		for _, r := range records {
			switch r.State {
			case schedlock.RunLost:
				row.Lost++
			case schedlock.RunFailed:
				row.Failed++
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func jobOf(ctx context.Context, l *schedlock.Locker, name string) (schedlock.Status, []schedlock.Record, error) {
	st, err := l.Status(ctx, name)
	if err != nil {
		return st, nil, err
	}
	records, err := l.History(ctx, name)
	return st, records, err
}

// stateOf returns the state of a job in words.
func stateOf(st schedlock.Status) string {
	var is []string
	if st.Running {
		is = append(is, "running")
	}
	if st.CoolingDown {
		is = append(is, "cooling down")
	}
	if st.Paused != nil {
		is = append(is, "paused")
	}
	if len(is) == 0 {
		return "idle"
	}
	return strings.Join(is, ", ")
}

func bad(s schedlock.State) bool { return s == schedlock.RunLost || s == schedlock.RunFailed }

// runRow is a recorded run.
type runRow struct {
	Tick, Start             time.Time
	State, Owner, Error, By string
	Took                    string
	Attempt                 int
	Bad                     bool
}

// jobPage is the page of a job.
type jobPage struct {
	Name, State, Settings string
	Paused                *schedlock.Pause
	Locked                bool
	Total                 int
	Runs                  []runRow
	May                   map[string]bool
	pager
}

// Pager returns the place in the table.
func (p jobPage) Pager() pager { return p.pager }

// jobState is what is read of a job.
type jobState struct {
	status  schedlock.Status
	records []schedlock.Record
}

func readJob(q request) (any, time.Time, error) {
	name := q.name()
	state, asOf, err := read(q, "job/"+name, func(ctx context.Context) (s jobState, err error) {
		l, err := q.console.locker()
		if err == nil {
			s.status, s.records, err = jobOf(ctx, l, name)
		}
		return s, err
	})
	if errors.Is(err, schedlock.ErrUnknownJob) {
		err = notFound{err}
	}
	if err != nil {
		return nil, asOf, err
	}
	st := state.status
	p := jobPage{Name: name, State: stateOf(st), Settings: st.Settings, Paused: st.Paused, Locked: st.Running || st.CoolingDown, Total: len(state.records), May: q.offers("job/"+name, Pause, Resume, Unlock)}
	records, place := paged(q, state.records)
	p.pager = place
	for _, r := range records {
		row := runRow{Tick: r.Tick, Start: r.Start, State: string(r.State), Owner: r.Owner, Error: r.Error, By: r.By, Attempt: r.Attempt, Bad: bad(r.State), Took: "–"}
		if !r.End.IsZero() {
			row.Took = max(0, r.End.Sub(r.Start)).Round(time.Millisecond).String()
		}
		p.Runs = append(p.Runs, row)
	}
	return p, asOf, nil
}
