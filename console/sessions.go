package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// sessionRow is a live session.
type sessionRow struct {
	Owner string
	Name  string // its lease in hexadecimal
	Since time.Time
	Clock string // compared with this process's, if it was measured
	Holds int    // requests that hold a permit, of all queues
	Waits int

	lease int64
}

// sessionList is the list of the live sessions.
type sessionList struct {
	Sessions []sessionRow
	Chips    []chips
	Own      string // the console's own session, or ""
	Reads    bool   // the console only reads, and has no session
	pager
}

// Pager returns the place in the table.
func (l sessionList) Pager() pager { return l.pager }

func readSessions(q request) (any, quality, error) {
	rows, st, err := look(q, "sessions", sessionsOf)
	if err != nil {
		return nil, st, err
	}
	l := sessionList{Own: processName(int64(q.console.sess.Lease())), Reads: q.console.inner.Leaseless()}
	rows, states := choose(q, "show", "State", rows, []choice[sessionRow]{
		{"holds", "holds", false, func(r sessionRow) bool { return r.Holds > 0 }},
		{"waits", "waits", false, func(r sessionRow) bool { return r.Waits > 0 }},
		{"clock", "clock differs", true, func(r sessionRow) bool { return r.Clock != "" && r.Clock != agrees }},
	})
	rows, orders := sorted(q, rows, []sorting[sessionRow]{
		{"", "oldest", nil},
		{"new", "newest", func(a, b sessionRow) int { return b.Since.Compare(a.Since) }},
		{"holds", "most held", func(a, b sessionRow) int { return cmp.Compare(b.Holds, a.Holds) }},
		{"waits", "most waiting", func(a, b sessionRow) int { return cmp.Compare(b.Waits, a.Waits) }},
		{"name", "name", func(a, b sessionRow) int { return strings.Compare(a.Owner, b.Owner) }},
	})
	l.Chips = []chips{states, orders}
	l.Sessions, l.pager = paged(q, rows, "page")
	return l, st, nil
}

// sessionsOf returns the live sessions, the oldest first.
func sessionsOf(s *fleet.State) (rows []sessionRow) {
	holds, waits := s.Requests()
	for lease, of := range s.Sessions {
		row := sessionRow{Owner: of.Owner, Name: processName(lease), Since: record.Time(of.Since), Holds: holds[lease], Waits: waits[lease], lease: lease}
		if ms, ok := s.Lead(lease); ok {
			row.Clock = skew(time.Duration(ms) * time.Millisecond)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b sessionRow) int {
		return cmp.Or(fleet.CompareAges(a.Since, b.Since), cmp.Compare(a.lease, b.lease))
	})
	return rows
}

// skew describes the difference of a clock to this process's. What an event takes is part of it.
func skew(ahead time.Duration) string {
	switch ahead = ahead.Round(100 * time.Millisecond); {
	case ahead > 0:
		return fmt.Sprintf("%v ahead", ahead)
	case ahead < 0:
		return fmt.Sprintf("%v behind", -ahead)
	}
	return agrees
}

const agrees = "agrees"
