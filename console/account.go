package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// changeOf returns the record of an action on one target.
func changeOf(o order, at target) record.Change {
	act := o.action()
	c := record.Change{Verb: string(act.Verb), Name: act.Name, Target: act.Target, Before: at.before, After: o.value, Reason: o.reason}
	if o.clears() { // as the command has it
		c.Target, c.After = "", "the default"
	}
	return c
}

// forget removes the records of a job: the command does that alone.
const forget Verb = "forget"

// changeRow is what an operator has changed.
type changeRow struct {
	At                            time.Time
	By, Verb, Name, Href, Target  string
	Before, After, Reason, Failed string
	Open                          bool     // whether it was made is not known
	Queues                        []string // of an action on many, those that the viewer may read
}

// changeList is the page of the changes.
type changeList struct {
	Name   string // of which it has the changes alone, or ""
	Unread int    // changes that cannot be read, such as those of a later release
	Rows   []changeRow
	Chips  []chips
	pager
}

// Pager returns the place in the table.
func (l changeList) Pager() pager { return l.pager }

func readChanges(q request) (any, quality, error) {
	type changes struct {
		rows   []changeRow
		unread int
	}
	all, st, err := look(q, "changes", func(s *fleet.State) (all changes) {
		all.rows, all.unread = changesOf(s)
		return all
	})
	if err != nil {
		return nil, st, err
	}
	l := changeList{Name: q.name(), Unread: all.unread}
	mayRead := q.reader()
	var some []changeRow
	for _, r := range all.rows {
		queues := r.Queues // all viewers share them
		r.Queues = nil
		for _, name := range queues {
			if mayRead(name) {
				r.Queues = append(r.Queues, name)
			}
		}
		if mayRead(r.Name) && (l.Name == "" || slices.ContainsFunc(append(r.Queues, r.Name), func(name string) bool { return name == l.Name || keyIn(name, l.Name) })) {
			some = append(some, r)
		}
	}
	var verbs []choice[changeRow]
	for _, v := range []Verb{SetLimit, Evict, RequestStop, Pause, Resume, Unlock, Trigger, Resolve, Delete, EndSession, forget} {
		verbs = append(verbs, choice[changeRow]{name: string(v), label: string(v), is: func(r changeRow) bool { return r.Verb == string(v) }})
	}
	verbs = append(verbs, choice[changeRow]{"failed", "failed", true, func(r changeRow) bool { return r.Failed != "" || r.Open }})
	some, chosen := choose(q, "show", "Action", some, verbs)
	l.Chips = []chips{chosen}
	l.Rows, l.pager = paged(q, some, "page")
	return l, st, nil
}

// changesOf returns what operators have changed, the latest first, and how many changes cannot be read.
func changesOf(s *fleet.State) (rows []changeRow, unread int) {
	for _, c := range s.Changes {
		if c.Verb == "" {
			unread++
			continue
		}
		rows = append(rows, changeRow{
			At: record.Time(c.AtMS), By: c.By, Verb: c.Verb, Name: c.Name, Href: hrefOf(c.Name), Target: c.Target,
			Before: c.Before, After: c.After, Reason: c.Reason, Failed: c.Failed, Open: c.Open, Queues: c.Queues,
		})
	}
	slices.SortFunc(rows, func(a, b changeRow) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Name, b.Name), strings.Compare(a.Target, b.Target))
	})
	return rows, unread
}

// hrefOf returns the address of the page of a name as Authorize knows it.
func hrefOf(name string) string {
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case "job":
		return pageOf("job", rest)
	case "requests":
		return pageOf("store", rest)
	case "process":
		return pageOf("process", rest)
	}
	return pageOf("queue", name)
}
