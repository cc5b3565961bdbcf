package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// electionRow is an election.
type electionRow struct {
	Name, Leader, Note string
	Since              time.Time // the earliest time of its grant
	Candidates         int       // the leader is one of them
	Led                bool
	Gone               time.Time // when it was seen to be led last, if that is less than an hour ago and it has no candidate
}

// electionList is the list of the elections.
type electionList struct {
	Elections []electionRow
	Chips     []chips
	pager
}

// Pager returns the place in the table.
func (l electionList) Pager() pager { return l.pager }

func readElections(q request) (any, quality, error) {
	rows, st, err := look(q, "elections", func(s *fleet.State) []electionRow { return electionsOf(s, q.console.history.gone(s, time.Now())) })
	if err != nil {
		return nil, st, err
	}
	var l electionList
	rows, states := choose(q, "show", "State", rows, []choice[electionRow]{
		{"leaderless", "no candidate", true, func(r electionRow) bool { return !r.Gone.IsZero() }}, {"led", "led", false, func(r electionRow) bool { return r.Led }},
	})
	rows, orders := sorted(q, rows, []sorting[electionRow]{
		{"", "problems first", nil},
		{"new", "newest leader", func(a, b electionRow) int { return b.Since.Compare(a.Since) }},
		{"candidates", "most candidates", func(a, b electionRow) int { return cmp.Compare(b.Candidates, a.Candidates) }},
	})
	l.Chips = []chips{states, orders}
	l.Elections, l.pager = paged(q, rows, "page")
	return l, st, nil
}

// electionsOf returns the elections, those without a leader first. gone are as of history: etcd has nothing of them.
func electionsOf(s *fleet.State, gone map[string]time.Time) (rows []electionRow) {
	for name, at := range gone {
		if s.Queues[fleet.QueueID{Kind: keyspace.Election, Name: name}] == nil {
			rows = append(rows, electionRow{Name: name, Gone: at})
		}
	}
	for id, of := range s.Queues {
		if id.Kind != keyspace.Election {
			continue
		}
		row := electionRow{Name: id.Name, Candidates: of.Now.Waiting, Led: of.Now.Used > 0, Gone: gone[id.Name]}
		if holders, _ := of.Requests(0, 1); len(holders) > 0 {
			row.Candidates++
			row.Leader, row.Note, row.Since = holders[0].Owner, holders[0].Note, record.Time(holders[0].Since)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b electionRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// trouble is how much an election wants an operator: 0 if it does not.
func (r electionRow) trouble() int {
	switch {
	case !r.Gone.IsZero():
		return 2
	case !r.Led: // a stray key alone
		return 1
	}
	return 0
}
