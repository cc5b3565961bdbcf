package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// subject is a queue, as KIND/NAME or limiter/NAME/KEY.
type subject struct {
	kind      concurrency.QueueKind
	name, key string
}

func (s subject) String() string {
	if s.key != "" {
		return fmt.Sprintf("%s/%s/%s", s.kind, s.name, s.key)
	}
	return fmt.Sprintf("%s/%s", s.kind, s.name)
}

// parse reads the name of a queue.
func parse(text string) (subject, error) {
	kind, rest, ok := strings.Cut(text, "/")
	s := subject{kind: concurrency.QueueKind(kind), name: rest}
	if s.kind == concurrency.KindLimiter {
		s.name, s.key, _ = strings.Cut(rest, "/")
	}
	kinds := []concurrency.QueueKind{concurrency.KindSemaphore, concurrency.KindLimiter, concurrency.KindMutex, concurrency.KindElection, concurrency.KindRate}
	if !ok || s.name == "" || !slices.Contains(kinds, s.kind) {
		return s, badRequest{fmt.Errorf("%q names no queue", text)}
	}
	return s, nil
}

// queue is what the console needs of one.
type queue interface {
	Status(ctx context.Context, opts ...concurrency.StatusOption) (concurrency.Status, error)
	EvictToken(ctx context.Context, token int64, reason string) error
	RequestStop(ctx context.Context, token int64, reason string) error
}

// of returns a queue. Of a limiter without a key that is its total.
func (c *console) of(s subject) (queue, error) {
	switch s.kind {
	case concurrency.KindSemaphore, concurrency.KindLimiter:
		return c.semaphore(s)
	case concurrency.KindMutex:
		return concurrency.NewMutex(c.sess, s.name)
	case concurrency.KindElection:
		return concurrency.NewElection(c.sess, s.name)
	default:
		return nil, badRequest{fmt.Errorf("%s has no page: its holders are processes with shares of a rate", s)}
	}
}

func (c *console) semaphore(s subject) (*concurrency.Semaphore, error) {
	if s.kind == concurrency.KindSemaphore {
		return concurrency.NewSemaphore(c.sess, s.name, 0, &concurrency.SemaphoreOptions{AdoptLimit: true})
	}
	l, err := c.limiter(s)
	if err != nil {
		return nil, err
	}
	if s.key == "" {
		return l.Total(), nil
	}
	return l.Key(s.key), nil
}

func (c *console) limiter(s subject) (*concurrency.KeyedLimiter, error) {
	return concurrency.NewKeyedLimiter(c.sess, s.name, 0, &concurrency.KeyedLimiterOptions{AdoptLimit: true, Total: 1})
}

// queueRow is a queue in the overview.
type queueRow struct {
	Name                   string
	Requests               int
	Read                   bool // the rest is known
	Limit, Used, Waiting   int
	Stored, Full           bool
	OldestWait, OldestHold time.Time
}

// limitText shows the limit of a queue.
func limitText(r queueRow) string {
	switch {
	case !r.Read || !r.Stored && r.Limit == 0:
		return "–"
	case r.Limit == 0:
		return "0, paused"
	}
	return strconv.Itoa(r.Limit)
}

// overview is the first page.
type overview struct {
	Total, Waiting, Saturated, Unread int
	Queues                            []queueRow
	pager
}

// Pager returns the place in the table.
func (o overview) Pager() pager { return o.pager }

// Bounds of the overview.
const (
	mostNames = 10_000 // that are listed
	mostRead  = 2_000  // whose state is read
	atOnce    = 8
)

func readQueues(q request) (any, time.Time, error) {
	rows, asOf, err := read(q, "queues", q.console.rows)
	if err != nil {
		return nil, asOf, err
	}
	o := overview{Total: len(rows)}
	for _, r := range rows {
		o.Waiting += r.Waiting
		if r.Full {
			o.Saturated++
		}
		if !r.Read {
			o.Unread++
		}
	}
	o.Queues, o.pager = paged(q, rows)
	return o, asOf, nil
}

// rows reads all queues, and the states of the first ones.
func (c *console) rows(ctx context.Context) (rows []queueRow, err error) {
	var all []subject
	for q, err := range c.sess.Queues(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, subject{kind: q.Kind, name: q.Name})
		rows = append(rows, queueRow{Name: all[len(all)-1].String(), Requests: q.Requests})
		if len(rows) == mostNames {
			break
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range rows[:min(mostRead, len(rows))] {
		if all[i].kind == concurrency.KindRate {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c.fill(ctx, all[i], &rows[i])
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b queueRow) int {
		return cmp.Or(compareAges(a.OldestWait, b.OldestWait), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name))
	})
	return rows, nil
}

// compareAges sorts earlier times first, and those that are not known last.
func compareAges(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// fill reads the state of a queue. One that cannot be read is shown by its name.
func (c *console) fill(ctx context.Context, s subject, r *queueRow) {
	of, err := c.of(s)
	if err != nil {
		return
	}
	st, err := of.Status(ctx)
	if err != nil {
		return
	}
	r.Read, r.Stored, r.Limit, r.Used, r.Waiting = true, st.Stored, st.Limit, st.Used, len(st.Waiters)
	if s.kind == concurrency.KindMutex || s.kind == concurrency.KindElection {
		r.Limit = 1
	}
	r.Full = r.Waiting > 0
	r.OldestWait, r.OldestHold = oldest(st.Waiters), oldest(st.Holders)
}

func oldest(all []concurrency.Request) (t time.Time) {
	for _, r := range all {
		if t.IsZero() || r.Requested.Before(t) {
			t = r.Requested
		}
	}
	return t
}

// requestRow is a request in the table of a queue.
type requestRow struct {
	Place                         string // of a waiter
	Owner, ID, Note               string
	Level                         string // at which a request of a limiter waits
	Weight                        int
	Token                         string
	Requested, Renewed, ExpiresBy time.Time
}

func rowOf(r concurrency.Request) requestRow {
	return requestRow{
		Owner: r.Owner, ID: r.ID, Note: r.Note, Level: string(r.WaitsFor), Weight: r.Weight, Token: strconv.FormatInt(r.Token, 10),
		Requested: r.Requested, Renewed: r.Renewed.Truncate(time.Second), ExpiresBy: r.ExpiresBy.Truncate(time.Second),
	}
}

// queueState is what is read of a queue.
type queueState struct {
	status   concurrency.Status
	keys     []keyRow
	keyCount int
	hasTotal bool
}

// keyRow is a key of a limiter.
type keyRow struct {
	Name, Key string
	Requests  int
	Stored    bool
	Limit     int
}

// queuePage is the page of a queue.
type queuePage struct {
	Name, Limit            string
	Stored, Paused         bool
	Used, Waiting, Foreign int
	Holders, Waiters       []requestRow
	HolderCount            int
	Blocker                *requestRow
	Keys                   []keyRow
	KeyCount               int
	May                    map[string]bool
	pager
}

// Pager returns the place in the table.
func (p queuePage) Pager() pager { return p.pager }

func readQueue(q request) (any, time.Time, error) {
	s, err := parse(q.name())
	if err != nil {
		return nil, time.Time{}, err
	}
	state, asOf, err := read(q, "queue/"+s.String(), func(ctx context.Context) (queueState, error) { return q.console.readQueue(ctx, s) })
	if err != nil {
		return nil, asOf, err
	}
	st := state.status
	p := queuePage{
		Name: s.String(), Limit: strconv.Itoa(st.Limit), Stored: st.Stored || s.kind == concurrency.KindMutex || s.kind == concurrency.KindElection,
		Paused: st.Stored && st.Limit == 0, Used: st.Used, Waiting: len(st.Waiters), Foreign: st.Foreign, HolderCount: len(st.Holders),
		Keys: state.keys, KeyCount: state.keyCount, May: q.offers(s.String(), RequestStop, Evict, SetLimit),
	}
	if s.kind == concurrency.KindMutex || s.kind == concurrency.KindElection {
		p.May[string(SetLimit)] = false
	}
	for _, r := range st.Holders[:min(pageSize, len(st.Holders))] {
		p.Holders = append(p.Holders, rowOf(r))
	}
	if len(p.Holders) > 0 {
		p.Blocker = &p.Holders[0]
	}
	waiters, place := paged(q, st.Waiters)
	p.pager = place
	for i, r := range waiters {
		row := rowOf(r)
		row.Place = ordinal(place.From + i)
		p.Waiters = append(p.Waiters, row)
	}
	return p, asOf, nil
}

func (c *console) readQueue(ctx context.Context, s subject) (out queueState, err error) {
	of, err := c.of(s)
	if err != nil {
		return out, err
	}
	out.status, err = of.Status(ctx, concurrency.CheckLeases())
	if s.kind == concurrency.KindLimiter && s.key == "" {
		if errors.Is(err, concurrency.ErrInvalid) {
			err = nil // it has no total
		}
		if err == nil {
			out.keys, out.keyCount, err = c.keys(ctx, s)
		}
	}
	return out, err
}

// keys reads the keys of a limiter with the most requests.
func (c *console) keys(ctx context.Context, s subject) (rows []keyRow, n int, err error) {
	l, err := c.limiter(s)
	if err != nil {
		return nil, 0, err
	}
	for k, err := range l.Keys(ctx) {
		if err != nil {
			return nil, 0, err
		}
		n++
		rows = append(rows, keyRow{subject{s.kind, s.name, k.Key}.String(), k.Key, k.Requests, k.Stored, k.Limit})
		if len(rows) > 4*pageSize {
			rows = hottest(rows)
		}
	}
	return hottest(rows), n, nil
}

// hottest returns the keys with the most requests.
func hottest(rows []keyRow) []keyRow {
	slices.SortStableFunc(rows, func(a, b keyRow) int { return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Key, b.Key)) })
	return rows[:min(pageSize, len(rows))]
}

// electionRow is an election.
type electionRow struct {
	Name, Leader, Note string
	Requested          time.Time
	Candidates         int
}

func readElections(q request) (any, time.Time, error) {
	rows, asOf, err := read(q, "elections", func(ctx context.Context) ([]electionRow, error) {
		var rows []electionRow
		for e, err := range q.console.sess.Queues(ctx) {
			if err != nil {
				return nil, err
			}
			if e.Kind != concurrency.KindElection || len(rows) == mostRead {
				continue
			}
			el, err := concurrency.NewElection(q.console.sess, e.Name)
			if err != nil {
				return nil, err
			}
			st, err := el.Status(ctx)
			if err != nil {
				return nil, err
			}
			row := electionRow{Name: e.Name, Candidates: len(st.Waiters)}
			if len(st.Holders) > 0 {
				h := st.Holders[0]
				row.Leader, row.Note, row.Requested = h.Owner, h.Note, h.Requested
			}
			rows = append(rows, row)
		}
		return rows, nil
	})
	return rows, asOf, err
}
