package console

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// totals is what wants an operator in all of a namespace.
type totals struct {
	Queues, Waiting, Crowded, Full, Paused, Leaderless int // elections count in Queues and Leaderless alone
	Overdue, OverdueIn, Foreign, ForeignIn             int // requests and keys, and how many queues have them
	Jobs, OverdueJobs, PausedJobs                      int
	LostRuns, LostIn, FailedRuns, FailedIn             int // runs, and how many jobs have them
	Stores, UnknownRequests, UnreadableRecords         int
	Slow, Held, Unreadable                             int // queues
	Sessions, Skewed                                   int // processes, and those whose clock differs
	Strays                                             int // keys outside of queues that are not etcdkit's
	OldestWait                                         time.Time
}

// overview is the first page.
type overview struct {
	totals
	Problems   []problem
	Omitted    int // problems that are not shown
	Rows       []queueRow
	Unused     bool // no service has left anything in the namespace
	Prefix     string
	Namespace  string
	Namespaces []otherNamespace // the other ones
	Further    bool             // there are more of them
}

// otherNamespace is one that another console shows.
type otherNamespace struct {
	Name, Href string // Href is "" if it has no console
}

// busy is what is shown of a namespace.
type busy struct {
	totals   totals
	problems []problem
	rows     []queueRow
	unused   bool // no service has left anything
}

// Bounds of the overview: each list has a page with all of it.
const (
	mostProblems = 25
	mostBusy     = 20
)

func readOverview(q request) (any, quality, error) {
	all, st, err := look(q, "overview", func(s *fleet.State) busy { return busiest(s, q.console.history.gone(s, time.Now())) })
	if err != nil {
		return nil, st, err
	}
	o := overview{totals: all.totals, Unused: all.unused, Prefix: q.console.inner.Space().Root(), Rows: q.console.history.trends(all.rows[:min(len(all.rows), mostBusy)], st.asOf)}
	_, o.Namespace = q.console.inner.Space().Parts()
	ctx, cancel := context.WithTimeout(q.Context(), patience) // the page is shown without what is read of etcd here
	defer cancel()
	q.Request = q.WithContext(ctx)
	alarms, _, _ := readFor(q, "alarms", alarmsEvery, q.console.alarms) // the doctor says why they are not known
	problems := worstFirst(slices.Concat(problemsOfEtcd(alarms), all.problems))
	o.Problems = problems[:min(len(problems), mostProblems)]
	o.Omitted = len(problems) - len(o.Problems)
	names, _, err := readFor(q, "namespaces", time.Minute, q.console.namespaces)
	if err == nil { // a role may permit this namespace alone
		o.Further = len(names) > mostNamespaces
		for _, name := range names[:min(len(names), mostNamespaces)] {
			at := otherNamespace{Name: name}
			if link := q.console.opts.Elsewhere; link != nil {
				at.Href = link(name)
			}
			o.Namespaces = append(o.Namespaces, at)
		}
	}
	return o, st, nil
}

// busiest returns all queues, those with the oldest waits first, and what wants an operator. gone are as of history.
func busiest(s *fleet.State, gone map[string]time.Time) (out busy) {
	out.rows = rowsOf(s, time.Now(), gone)
	slices.SortFunc(out.rows, func(a, b queueRow) int { return a.rank().Compare(b.rank()) })
	jobs, stores := jobsOf(s), storesOf(s)
	out.totals.addQueues(out.rows)
	out.totals.addJobs(jobs)
	for _, st := range stores {
		out.totals.UnknownRequests += st.Refused
		out.totals.UnreadableRecords += st.Unreadable
	}
	out.totals.Stores, out.totals.Sessions = len(stores), len(s.Sessions)
	sessions := sessionsOf(s)
	for _, r := range sessions {
		out.totals.Skewed += r.trouble()
	}
	out.problems = worstFirst(slices.Concat(problemsOf(out.rows, jobs, stores, sessions), problemsOfKeys(s, &out.totals), problemsOfDeaths(s, time.Now())))
	out.unused = len(out.rows)+len(s.Jobs)+len(s.Stores) == 0
	return out
}

// addQueues adds the rows of all queues, of which those with the oldest waits are first.
func (n *totals) addQueues(rows []queueRow) {
	one := func(is bool) int { return map[bool]int{true: 1}[is] }
	for _, r := range rows {
		n.Foreign += r.Foreign
		n.ForeignIn += one(r.Foreign > 0)
		n.Overdue += r.Overdue
		n.OverdueIn += one(r.Overdue > 0)
		n.Leaderless += one(r.Leaderless)
		n.Slow += one(r.Slow)
		n.Held += one(r.Held)
		n.Unreadable += one(r.Unreadable)
		if r.Election {
			continue
		}
		n.Waiting += r.Waiting
		n.Crowded += one(r.Waiting > 0)
		n.Full += one(r.atLimit())
		n.Paused += one(r.Paused)
	}
	if n.Queues = len(rows); n.Waiting > 0 {
		n.OldestWait = rows[0].OldestWait
	}
}

// addJobs adds all jobs.
func (n *totals) addJobs(jobs []jobRow) {
	one := func(is bool) int { return map[bool]int{true: 1}[is] }
	n.Jobs = len(jobs)
	for _, j := range jobs {
		n.LostRuns += j.Lost
		n.LostIn += one(j.Lost > 0)
		n.FailedRuns += j.Failed
		n.FailedIn += one(j.Failed > 0)
		n.PausedJobs += one(j.Paused)
		n.OverdueJobs += one(!j.Overdue.IsZero())
	}
}

// mostNamespaces bounds how many other namespaces are named.
const mostNamespaces = 200

// namespaces lists the other namespaces below the same prefix, by one key of each, up to one more than are named.
func (c *console) namespaces(ctx context.Context) (names []string, err error) {
	prefix, own := c.inner.Space().Parts()
	root, err := keyspace.Namespaces(prefix)
	if err != nil {
		return nil, err
	}
	for from := root; len(names) <= mostNamespaces; {
		resp, err := c.inner.Read(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(root)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, err
		}
		if len(resp.Kvs) == 0 {
			break
		}
		key := string(resp.Kvs[0].Key)
		name, space, ok := keyspace.ParseNamespace(prefix, key)
		if !ok { // a foreign key
			from = key + "\x00"
			continue
		}
		if from = clientv3.GetPrefixRangeEnd(space.Root()); name != own {
			names = append(names, name)
		}
	}
	return names, nil
}
