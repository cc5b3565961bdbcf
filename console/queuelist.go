package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// queueRow is a queue in a list.
type queueRow struct {
	Name, Kind             string
	Requests               int
	Rate                   bool // its holders are processes with shares
	Limit                  string
	Most                   int64 // what Used is compared with, or 0
	Used                   int64
	Waiting                int
	Full                   bool // its limit is reached; of a limiter, that of a key or the total
	Paused                 bool
	Election               bool // its waiters are candidates that wait for as long as the leader leads
	Leaderless             bool // of an election: it was led lately, and has no candidate
	Unreadable             bool // a limit of it cannot be read
	Slow, Held             bool // a request has waited, or has held without a MaxHold, for as long as an alert says
	Overdue, Foreign       int
	PausedKeys             int // of a limiter other keys of which are admitted
	OldestWait, OldestHold time.Time
	Marks                  marks
	Trend                  string // path of the permits and waiters of the last hour, or ""

	led, unbounded time.Time // when it was seen to be led last; the oldest hold without a MaxHold
}

// queueList is the page of all queues.
type queueList struct {
	Rows   []queueRow
	Chips  []chips
	Unused bool // no service has left anything in the namespace
	Prefix string
	pager
}

// Pager returns the place in the table.
func (l queueList) Pager() pager { return l.pager }

// queueChoices are the states by which queues are selected.
var queueChoices = []choice[queueRow]{
	{"paused", "paused", true, func(r queueRow) bool { return r.Paused }},
	{"leaderless", "no candidate", true, func(r queueRow) bool { return r.Leaderless }},
	{"unreadable", "limit cannot be read", true, func(r queueRow) bool { return r.Unreadable }},
	{"overdue", "held too long", true, func(r queueRow) bool { return r.Overdue > 0 }},
	{"slow", "long wait", true, func(r queueRow) bool { return r.Slow }},
	{"held", "held for an hour", true, func(r queueRow) bool { return r.Held }},
	{"foreign", "foreign keys", true, func(r queueRow) bool { return r.Foreign > 0 }},
	{"full", "at the limit", false, queueRow.atLimit},
	{"waiting", "waiting", false, func(r queueRow) bool { return !r.Election && r.Waiting > 0 }},
}

// queueKinds are the kinds by which queues are selected.
func queueKinds() (all []choice[queueRow]) {
	for _, kind := range []concurrency.QueueKind{concurrency.KindSemaphore, concurrency.KindLimiter, concurrency.KindMutex, concurrency.KindElection, concurrency.KindRate} {
		all = append(all, choice[queueRow]{name: string(kind), label: string(kind), is: func(r queueRow) bool { return r.Kind == string(kind) }})
	}
	return all
}

// queueOrders are the orders of the list.
var queueOrders = []sorting[queueRow]{
	{"", "problems first", nil},
	{"wait", "oldest wait", func(a, b queueRow) int { return fleet.CompareAges(a.OldestWait, b.OldestWait) }},
	{"waiting", "most waiting", func(a, b queueRow) int { return cmp.Compare(b.Waiting, a.Waiting) }},
	{"hold", "oldest hold", func(a, b queueRow) int { return fleet.CompareAges(a.OldestHold, b.OldestHold) }},
	{"used", "most used", func(a, b queueRow) int { return cmp.Compare(b.Used, a.Used) }},
	{"name", "name", func(a, b queueRow) int { return strings.Compare(a.Name, b.Name) }},
}

func readQueues(q request) (any, quality, error) {
	rows, st, err := look(q, "queues", queuesSeen(q.console))
	if err != nil {
		return nil, st, err
	}
	l := queueList{Unused: len(rows) == 0, Prefix: q.console.inner.Space().Root()}
	var states, kinds, orders chips
	ofKind, _ := choose(q, "kind", "Kind", rows, queueKinds())
	inState, _ := choose(q, "show", "State", rows, queueChoices)
	_, kinds = choose(q, "kind", "Kind", inState, queueKinds()) // each counts what its link shows, beside the other
	rows, states = choose(q, "show", "State", ofKind, queueChoices)
	rows, orders = sorted(q, rows, queueOrders)
	l.Chips = []chips{states, kinds, orders}
	rows, l.pager = paged(q, rows, "page")
	l.Rows = q.console.history.trends(rows, st.asOf)
	return l, st, nil
}

// queuesSeen returns all queues, with the elections that a console has seen to be led.
func queuesSeen(c *console) func(*fleet.State) []queueRow {
	return func(s *fleet.State) []queueRow { return queuesOf(s, c.history.gone(s, time.Now())) }
}

// queuesOf returns all queues, those that want an operator first, then those with the oldest waits. gone are as of history.
func queuesOf(s *fleet.State, gone map[string]time.Time) []queueRow {
	rows := rowsOf(s, time.Now(), gone)
	slices.SortFunc(rows, func(a, b queueRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), a.rank().Compare(b.rank()))
	})
	return rows
}

// rowsOf returns a row for each queue and each limiter, and for the elections that are gone, at a time.
func rowsOf(s *fleet.State, now time.Time, gone map[string]time.Time) (rows []queueRow) {
	for id, of := range s.Queues {
		row := rowOfQueue(id, of)
		row.add(of, now)
		if id.Kind == keyspace.Election {
			row.led, row.Leaderless = gone[id.Name], !gone[id.Name].IsZero()
		}
		rows = append(rows, row.judged(now).marked())
	}
	for name, at := range gone {
		if s.Queues[fleet.QueueID{Kind: keyspace.Election, Name: name}] == nil {
			row := queueRow{Name: subject{kind: concurrency.KindElection, name: name}.String(), Kind: string(concurrency.KindElection), Limit: "–", Election: true, Leaderless: true, led: at}
			rows = append(rows, row.marked())
		}
	}
	for name, of := range s.Limiters {
		row, sum := rowOfLimiter(name, of, now.UnixMilli())
		row.Overdue, row.Unreadable, row.PausedKeys = sum.Late, of.Base.Damaged, sum.Paused
		for _, key := range of.Keys {
			row.addForeign(key)
		}
		if of.Total != nil {
			row.add(of.Total, now)
		}
		rows = append(rows, row.judged(now).marked())
	}
	return rows
}

// add adds what is wrong in a queue.
func (r *queueRow) add(of *fleet.Queue, now time.Time) {
	r.Overdue += of.Now.Overdue(now.UnixMilli())
	r.unbounded = record.Time(of.Now.Unbounded)
	r.addForeign(of)
}

// addForeign adds the foreign keys of a queue, and whether its limit cannot be read. Few queues have one of them.
func (r *queueRow) addForeign(of *fleet.Queue) {
	if of.Now.Foreign > 0 {
		r.Foreign += len(of.Strays())
	}
	if !of.Now.Known {
		_, bad := of.Unreadable()
		r.Unreadable = r.Unreadable || bad
	}
}

// judged adds what lasts for too long.
func (r queueRow) judged(now time.Time) queueRow {
	if r.Election || r.Rate {
		return r
	}
	r.Slow, r.Held = doctor.Lasts(r.Kind == string(concurrency.KindMutex), r.Paused, r.OldestWait, r.unbounded, now)
	return r
}

// atLimit reports whether a queue admits no more requests, as a busy one does at times.
func (r queueRow) atLimit() bool { return r.Full && !r.Paused && !r.Election }

// trouble is how much a queue wants an operator: 0 if it does not.
func (r queueRow) trouble() int {
	switch {
	case r.Paused, r.Leaderless, r.Unreadable:
		return 3
	case r.Overdue > 0:
		return 2
	case r.Foreign > 0, r.Slow, r.Held:
		return 1
	}
	return 0
}

// marked adds the states of a queue.
func (r queueRow) marked() queueRow {
	r.Marks.add(r.Paused, "paused", "paused")
	r.Marks.add(r.Leaderless, "bad", "no candidate")
	r.Marks.add(r.Unreadable, "bad", "limit cannot be read")
	r.Marks.add(r.Overdue > 0, "bad", fmt.Sprintf("%d held too long", r.Overdue))
	r.Marks.add(r.Foreign > 0, "warn", count(r.Foreign, "foreign key", "foreign keys"))
	r.Marks.add(r.Slow, "warn", "long wait")
	r.Marks.add(r.Held, "warn", "held for an hour")
	switch {
	case len(r.Marks) > 0:
	case r.Rate:
		r.Marks.add(true, map[bool]string{true: "ok", false: "off"}[r.Requests > 0], count(r.Requests, "share", "shares"))
	case r.Election:
		r.Marks.add(true, "ok", "led")
	case r.atLimit():
		aKey := r.Kind == string(concurrency.KindLimiter) && (r.Most == 0 || r.Used < r.Most)
		r.Marks.add(true, "busy", map[bool]string{true: "a key at its limit", false: "at the limit"}[aKey])
	default:
		r.Marks.add(r.Used > 0, "ok", "in use")
		r.Marks.add(r.Used == 0, "off", "idle")
	}
	r.Marks.add(r.PausedKeys > 0, "paused", count(r.PausedKeys, "paused key", "paused keys"))
	return r
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// limitOf returns a limit as it is shown, or none in place of one that is not stored.
func limitOf(n fleet.Summary, none string) string {
	switch {
	case n.Known:
		return strconv.FormatInt(n.Limit, 10)
	case n.Unreadable != nil:
		return "unreadable"
	}
	return none
}

// textOf returns the text of an error, or "" for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func rowOfQueue(id fleet.QueueID, of *fleet.Queue) queueRow {
	kind := concurrency.QueueKind(id.Label())
	row := queueRow{Name: subject{kind: kind, name: id.Name}.String(), Kind: string(kind), Requests: of.Len(), Limit: "–"}
	if kind == concurrency.KindRate {
		row.Rate = true
		if rate, _ := of.Rate(); rate.PerSecond > 0 {
			row.Limit = rateText(rate.PerSecond)
		} else if row.Unreadable = of.Now.Unreadable != nil; row.Unreadable {
			row.Limit = limitOf(of.Now, row.Limit)
		}
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
	r.Limit, r.Unreadable = limitOf(n, r.Limit), n.Unreadable != nil
	r.Used, r.Waiting, r.OldestWait, r.OldestHold = n.Used, n.Waiting, record.Time(n.OldestWait), record.Time(n.OldestHold)
	if n.Known {
		r.Most, r.Paused = n.Limit, n.Limit == 0
	}
	r.Full = n.Full
}

// rowOfLimiter sums up a limiter. A request waits at its key, and then, where there is a total, at the total;
// it holds in the last one of them.
func rowOfLimiter(name string, of *fleet.Limiter, now int64) (queueRow, fleet.Sum) {
	sum := of.Sum(now)
	n := sum.Summary
	n.Known, n.Limit, n.Unreadable = of.Base.Rev != 0 && !of.Base.Damaged, of.Base.Limit.Limit, of.Base.Unreadable()
	row := queueRow{Name: subject{kind: concurrency.KindLimiter, name: name}.String(), Kind: string(concurrency.KindLimiter), Requests: of.Requests()}
	row.fill(n)
	row.Most, row.Paused = 0, of.Paused() // each key has its own
	row.unbounded = record.Time(sum.Unbounded)
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
			row.Most = total.Now.Limit
			row.Paused = row.Paused || total.Now.Limit == 0
		} else if total.Now.Unreadable != nil {
			row.Limit, row.Unreadable = row.Limit+", an unreadable total", true
		}
		row.Full = row.Full || total.Now.Full
	}
	return row, sum
}

// sideQueues are the names beside the page of a queue.
func sideQueues(c *console, s *fleet.State) (out []sideRow) {
	for _, r := range queuesSeen(c)(s) {
		out = append(out, sideRow{Name: r.Name, Href: pageOf("queue", r.Name), Shape: r.Marks[0].Shape, State: r.Marks[0].Text})
	}
	return out
}

// keyIn reports whether a queue is a key of a limiter.
func keyIn(name, limiter string) bool {
	return strings.HasPrefix(limiter, string(concurrency.KindLimiter)+"/") && strings.HasPrefix(name, limiter+"/")
}
