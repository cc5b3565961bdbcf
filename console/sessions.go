package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// sessionRow is a live session.
type sessionRow struct {
	Owner string
	Lease int64
	Since time.Time
	Clock string // compared with this process's, if it was measured
}

// sessionList is the list of the live sessions.
type sessionList struct {
	Sessions []sessionRow
	Own      int64 // the lease of the console's own session, or 0
	Reads    bool  // the console only reads, and has no session
	pager
}

// Pager returns the place in the table.
func (l sessionList) Pager() pager { return l.pager }

func readSessions(q request) (any, quality, error) {
	rows, st, err := look(q, "sessions", sessionsOf)
	if err != nil {
		return nil, st, err
	}
	l := sessionList{Own: int64(q.console.sess.Lease()), Reads: q.console.inner.Leaseless()}
	l.Sessions, l.pager = paged(q, rows, "page")
	return l, st, nil
}

// sessionsOf returns the live sessions, the oldest first.
func sessionsOf(s *fleet.State) (rows []sessionRow) {
	for lease, of := range s.Sessions {
		row := sessionRow{Owner: of.Owner, Lease: lease, Since: record.Time(of.Since)}
		if ms, ok := s.Lead(lease); ok {
			row.Clock = skew(time.Duration(ms) * time.Millisecond)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b sessionRow) int {
		return cmp.Or(fleet.CompareAges(a.Since, b.Since), cmp.Compare(a.Lease, b.Lease))
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
	return "agrees"
}
