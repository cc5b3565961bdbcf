package console

import (
	"context"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// queueRow is a queue in the overview.
type queueRow struct {
	Name                   string
	Requests               int
	Read                   bool // the rest is known; of rate limiters it is not
	Limit                  string
	Used                   int64
	Waiting                int
	Full                   bool // its limit is reached; of a limiter, that of a key or the total
	Paused                 bool
	Election               bool // its waiters are candidates that wait for as long as the leader leads
	Overdue, Foreign       int
	OldestWait, OldestHold time.Time
}

// totals is what wants an operator in all of a namespace.
type totals struct {
	Queues, Waiting, Crowded, Full, Paused, Overdue, Leaderless int // elections count in Queues and Leaderless alone
	LostRuns, FailedRuns, PausedJobs, OverdueJobs               int
	UnknownRequests                                             int
	Sessions, Foreign                                           int
	OldestWait                                                  time.Time
}

// overview is the first page.
type overview struct {
	totals
	Rows       []queueRow
	Unused     bool // no service has left anything in the namespace
	Prefix     string
	Namespace  string
	Namespaces []string // the other ones
	Omitted    bool     // there are more of them
	pager
}

// Pager returns the place in the table.
func (o overview) Pager() pager { return o.pager }

// busy is what is shown of the queues of a namespace.
type busy struct {
	totals totals
	rows   []queueRow
	unused bool // no service has left anything
}

func readOverview(q request) (any, quality, error) {
	all, st, err := look(q, "overview", busiest)
	if err != nil {
		return nil, st, err
	}
	o := overview{totals: all.totals, Unused: all.unused, Prefix: q.console.inner.Space().Root()}
	_, o.Namespace = q.console.inner.Space().Parts()
	o.Rows, o.pager = paged(q, all.rows, "page")
	ctx, cancel := context.WithTimeout(q.Context(), patience) // they are a courtesy
	defer cancel()
	q.Request = q.WithContext(ctx)
	names, _, err := readFor(q, "namespaces", time.Minute, q.console.namespaces)
	if err == nil { // a role may permit this namespace alone
		o.Omitted = len(names) > mostNamespaces
		o.Namespaces = names[:min(len(names), mostNamespaces)]
	}
	return o, st, nil
}

// busiest returns all queues, those with the oldest waits first.
func busiest(s *fleet.State) (out busy) {
	now := time.Now().UnixMilli()
	for id, of := range s.Queues {
		if id.Kind == keyspace.Election && of.Now.Used == 0 {
			out.totals.Leaderless++
		}
	}
	out.rows = rowsOf(s, now)
	slices.SortFunc(out.rows, func(a, b queueRow) int { return a.rank().Compare(b.rank()) })
	out.totals.addQueues(out.rows)
	out.totals.addJobs(s, time.UnixMilli(now))
	for _, st := range s.Stores {
		out.totals.UnknownRequests += st.Count[fleet.Unknown]
	}
	out.totals.Sessions = len(s.Sessions)
	out.unused = len(out.rows)+len(s.Jobs)+len(s.Stores) == 0
	return out
}

// rowsOf returns a row for each queue and each limiter, at a time in milliseconds.
func rowsOf(s *fleet.State, now int64) (rows []queueRow) {
	for id, of := range s.Queues {
		row := rowOfQueue(id, of)
		row.Foreign, row.Overdue = of.Now.Foreign, of.Now.Overdue(now)
		rows = append(rows, row)
	}
	for name, of := range s.Limiters {
		row, sum := rowOfLimiter(name, of, now)
		row.Foreign, row.Overdue = sum.Foreign, sum.Late
		if of.Total != nil {
			row.Foreign += of.Total.Now.Foreign
			row.Overdue += of.Total.Now.Overdue(now)
		}
		rows = append(rows, row)
	}
	return rows
}

// addQueues adds the rows of all queues, of which those with the oldest waits are first.
func (n *totals) addQueues(rows []queueRow) {
	for _, r := range rows {
		n.Foreign += r.Foreign
		n.Overdue += r.Overdue
		if r.Election {
			continue
		}
		n.Waiting += r.Waiting
		if r.Waiting > 0 {
			n.Crowded++
		}
		if r.Full && !r.Paused {
			n.Full++
		}
		if r.Paused {
			n.Paused++
		}
	}
	if n.Queues = len(rows); n.Waiting > 0 {
		n.OldestWait = rows[0].OldestWait
	}
}

// addJobs adds all jobs that were not forgotten.
func (n *totals) addJobs(s *fleet.State, now time.Time) {
	for _, j := range s.Jobs {
		if j.Forgotten() {
			continue
		}
		h := j.History(now)
		n.LostRuns += h.Lost
		n.FailedRuns += h.Failed
		if j.Paused {
			n.PausedJobs++
		}
		if !overdueSince(j, now).IsZero() {
			n.OverdueJobs++
		}
	}
}

func rowOfQueue(id fleet.QueueID, of *fleet.Queue) queueRow {
	kind := concurrency.QueueKind(id.Label())
	row := queueRow{Name: subject{kind: kind, name: id.Name}.String(), Requests: of.Len(), Limit: "–"}
	if kind == concurrency.KindRate { // its holders are processes with shares
		return row
	}
	row.fill(of.Now)
	row.Election = kind == concurrency.KindElection
	return row
}

func (r queueRow) rank() fleet.Rank {
	return fleet.Rank{Election: r.Election, OldestWait: r.OldestWait, Used: r.Used, Name: r.Name}
}

func (r *queueRow) fill(n fleet.Summary) {
	r.Read, r.Used, r.Waiting, r.OldestWait, r.OldestHold = true, n.Used, n.Waiting, record.Time(n.OldestWait), record.Time(n.OldestHold)
	if n.Known {
		r.Limit, r.Paused = strconv.FormatInt(n.Limit, 10), n.Limit == 0
	}
	r.Full = n.Full
}

// rowOfLimiter sums up a limiter. A request waits at its key, and then, where there is a total, at the total;
// it holds in the last one of them.
func rowOfLimiter(name string, of *fleet.Limiter, now int64) (queueRow, fleet.Sum) {
	sum := of.Sum(now)
	n := sum.Summary
	n.Known, n.Limit = of.Base.Rev != 0 && !of.Base.Damaged, of.Base.Limit.Limit
	row := queueRow{Name: subject{kind: concurrency.KindLimiter, name: name}.String(), Requests: of.Requests()}
	row.fill(n)
	row.Full = sum.FullKeys > 0
	if n.Known {
		row.Limit += " per key"
	}
	if total := of.Total; total != nil {
		row.Used, row.Waiting, row.OldestHold = total.Now.Used, row.Waiting+total.Now.Waiting, record.Time(total.Now.OldestHold)
		if at := record.Time(total.Now.OldestWait); fleet.CompareAges(at, row.OldestWait) < 0 {
			row.OldestWait = at
		}
		if total.Now.Known {
			row.Limit += ", " + strconv.FormatInt(total.Now.Limit, 10) + " in total"
			row.Paused = row.Paused || total.Now.Limit == 0
		}
		row.Full = row.Full || total.Now.Full
	}
	return row, sum
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
