package console

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// frame is what every page has.
type frame struct {
	Title     string
	Namespace string
	Cluster   string // as Options.Cluster
	Up        string // from the page's folder to the console's: "", or ../ for a path that there is not
	Tab       string // the link of the page's tab
	Query     string // what was searched for
	AsOf      time.Time
	// Unconfirmed says why etcd has not confirmed what is shown since; "" if it has.
	Unconfirmed string
	Live        bool   // the script reads it again
	Side        *side  // or nil
	Done        string // what an action has done, in words
	JSON        string // the address of Data as JSON, or ""
	Data        any
}

// titled is the data of a page whose title is in it.
type titled interface{ title() string }

// tab is one of the pages that the frame leads to.
type tab struct {
	Href, Label string
	Current     bool
}

// Tabs returns the pages that the frame leads to.
func (f frame) Tabs() []tab {
	all := []tab{{Href: "./", Label: "Overview"}, {Href: "queues", Label: "Queues"}, {Href: "elections", Label: "Elections"}, {Href: "jobs", Label: "Jobs"},
		{Href: "stores", Label: "Requests"}, {Href: "sessions", Label: "Processes"}, {Href: "changes", Label: "Changes"}, {Href: "doctor", Label: "Doctor"}}
	for i := range all {
		all[i].Current = all[i].Href == f.Tab
	}
	return all
}

// mark is a state, shown by its colour and its shape: ok, busy, warn, paused, bad or off.
type mark struct{ Shape, Text string }

// marks are the states of a row, the worst one first.
type marks []mark

// add adds a state, if it is one of the row's.
func (m *marks) add(is bool, shape, text string) {
	if is {
		*m = append(*m, mark{shape, text})
	}
}

// sideRow is a name in the column beside a page.
type sideRow struct {
	Name, Href, Shape, State string
	Current                  bool
}

// side is the column of names beside the page of one of them, on wide screens.
type side struct {
	Label, All string
	Names      []sideRow
	More       bool // there are more
}

// mostSide bounds the names of a side.
const mostSide = 40

// sides are the lists beside pages, by the path of the page.
var sides = map[string]struct {
	label, all string
	subject    string // of a name, before it
	rows       func(*console, *fleet.State) []sideRow
}{
	"queue": {"Queues", "queues", "", sideQueues},
	"job":   {"Jobs", "jobs", "job/", sideJobs},
	"store": {"Stores", "stores", "requests/", sideStores},
}
