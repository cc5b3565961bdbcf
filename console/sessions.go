package console

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/build"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// sessionRow is a live session.
type sessionRow struct {
	Owner    string
	Name     string // its lease in hexadecimal
	Since    time.Time
	Clock    string // compared with this process's, if it was measured
	Skew     string // by how much it differs, if that wants an operator
	Holds    int    // requests that hold a permit, of all queues
	Waits    int
	Versions build.Versions

	lease int64
}

// sessionList is the list of the live sessions.
type sessionList struct {
	Sessions []sessionRow
	Chips    []chips
	Own      string // the console's own session, or ""
	Outside  bool   // the console has no session in etcd
	Unknown  int    // clocks of other processes that are not known yet
	pager
}

// Pager returns the place in the table.
func (l sessionList) Pager() pager { return l.pager }

func readSessions(q request) (any, quality, error) {
	rows, st, err := look(q, "sessions", sessionsOf)
	if err != nil {
		return nil, st, err
	}
	l := sessionList{Own: processName(int64(q.console.sess.Lease())), Outside: q.console.inner.Leaseless()}
	for _, r := range rows {
		if r.Clock == "" && r.Skew == "" && r.Name != l.Own {
			l.Unknown++
		}
	}
	rows, states := choose(q, "show", "State", rows, []choice[sessionRow]{
		{"holds", "holds", false, func(r sessionRow) bool { return r.Holds > 0 }},
		{"waits", "waits", false, func(r sessionRow) bool { return r.Waits > 0 }},
		{"clock", "clock differs", true, func(r sessionRow) bool { return r.Skew != "" }},
	})
	rows, orders := sorted(q, rows, []sorting[sessionRow]{
		{"", "problems first", nil},
		{"old", "oldest", func(a, b sessionRow) int { return fleet.CompareAges(a.Since, b.Since) }},
		{"new", "newest", func(a, b sessionRow) int { return b.Since.Compare(a.Since) }},
		{"holds", "most held", func(a, b sessionRow) int { return cmp.Compare(b.Holds, a.Holds) }},
		{"waits", "most waiting", func(a, b sessionRow) int { return cmp.Compare(b.Waits, a.Waits) }},
		{"version", "version", func(a, b sessionRow) int {
			return cmp.Or(strings.Compare(a.Versions.Program, b.Versions.Program), strings.Compare(a.Versions.Etcdkit, b.Versions.Etcdkit))
		}},
		{"name", "name", func(a, b sessionRow) int { return strings.Compare(a.Owner, b.Owner) }},
	})
	l.Chips = []chips{states, orders}
	l.Sessions, l.pager = paged(q, rows, "page")
	return l, st, nil
}

// sessionsOf returns the live sessions, those whose clock differs first, then the oldest.
func sessionsOf(s *fleet.State) (rows []sessionRow) {
	holds, waits := s.Requests()
	for lease, of := range s.Sessions {
		row := sessionRow{Owner: of.Owner, Name: processName(lease), Since: record.Time(of.Since), Holds: holds[lease], Waits: waits[lease], Versions: of.Versions, lease: lease}
		row.Clock, row.Skew = clockOf(s, lease)
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b sessionRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), fleet.CompareAges(a.Since, b.Since), cmp.Compare(a.lease, b.lease))
	})
	return rows
}

// pseudo is a version that Go gives to a commit without a tag.
var pseudo = regexp.MustCompile(`^v.*[-.][0-9]{14}-([0-9a-f]{12}(?:\+.*)?)$`)

// Version is what its process was built from, in short: the version of its program, else that of etcdkit, else "". Of a commit
// without a tag it is the commit.
func (r sessionRow) Version() string {
	if _, version, ok := strings.Cut(r.Versions.Program, "@"); ok {
		return pseudo.ReplaceAllString(version, "$1")
	}
	if r.Versions.Etcdkit != "" {
		return "etcdkit " + pseudo.ReplaceAllString(r.Versions.Etcdkit, "$1")
	}
	return ""
}

// trouble is how much a process wants an operator: 0 if it does not.
func (r sessionRow) trouble() int {
	if r.Skew != "" {
		return 1
	}
	return 0
}

// clockOf describes the clock of a session's process, and how far it is off if the doctor finds that.
func clockOf(s *fleet.State, lease int64) (clock, off string) {
	c, now := s.ClockOf(lease), time.Now()
	if c.Measured {
		clock = skew(time.Duration(c.Lead) * time.Millisecond)
	}
	switch {
	case doctor.Clock(c, now) == nil:
		return clock, ""
	case c.Measured:
		return clock, clock
	}
	return clock, "behind, or it does not write"
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
