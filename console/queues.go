package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
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
	if !ok || s.name == "" || !slices.Contains(kinds, s.kind) || s.String() != text { // a name has one form: Authorize is asked about it
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
		return nil, badRequest{fmt.Errorf("%s is a rate: its holders are processes with shares, and have no requests", s)}
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

// requestRow is a request in the table of a queue.
type requestRow struct {
	Place                         string // of a waiter
	Turn                          string // about how long a waiter waits until it is served, or ""
	Owner, Process, ID, Note      string
	ForTotal                      bool // it is admitted at its key, and waits for the total
	Weight                        int
	Token                         string
	Requested, Renewed, ExpiresBy time.Time
	Held                          time.Time // not earlier: the time of a grant is not stored

	nth int // of those that wait here, from 1 on
}

func rowOf(r concurrency.Request) requestRow {
	return requestRow{
		Owner: r.Owner, Process: processName(int64(r.Lease)), ID: r.ID, Note: r.Note, ForTotal: r.WaitsFor == concurrency.LevelTotal, Weight: r.Weight, Token: strconv.FormatInt(r.Token, 10),
		Requested: r.Requested, Renewed: r.Renewed.Truncate(time.Second), ExpiresBy: r.ExpiresBy.Truncate(time.Second),
	}
}

// queuePage is the page of a queue.
type queuePage struct {
	Name, Limit            string
	Most                   int // the same as a number
	Stored, Paused, Limits bool
	Unread                 string    // why a limit that is stored cannot be read, or ""
	Idle                   bool      // nothing is in etcd, as of any mutex and election that is not in use
	Gone                   time.Time // of an election: when it was seen to be led last, if it is led no more; or zero
	Set                    changer   // of the limit
	Used, Waiting, Foreign int
	ForTotal               int    // of Used, by requests at a key that wait for the total
	Total                  string // the name of the total for which they wait
	Holders                holderPage
	Waiters                []requestRow
	Blocker                *requestRow // the oldest holder, if one of the waiters waits for it
	Charts                 []chart     // of the last hour, as far as the console has followed it
	Turn                   string      // about how long the last waiter waits
	Keys                   *keyPage
	Rate                   *ratePage
	May                    map[string]bool
	pager

	waitingHere int // of Waiting, those that do not wait for the total
	oldestWait  time.Time
}

// holderPage is the part of a queue's page that shows its holders.
type holderPage struct {
	Rows []requestRow
	pager
}

// Pager returns the place in the table.
func (p holderPage) Pager() pager { return p.pager }

// Pager returns the place in the table.
func (p queuePage) Pager() pager { return p.pager }

func readQueue(q request) (any, quality, error) {
	s, err := parse(q.name())
	if err != nil {
		return nil, quality{}, err
	}
	if s.kind == concurrency.KindRate {
		return readRate(q, s)
	}
	p := queuePage{Name: s.String(), Limits: s.kind != concurrency.KindMutex && s.kind != concurrency.KindElection, May: q.offers(s.String(), RequestStop, Evict, SetLimit)}
	p.May[string(SetLimit)] = p.May[string(SetLimit)] && p.Limits
	if s.kind == concurrency.KindLimiter {
		p.Total = subject{kind: s.kind, name: s.name}.String()
	}
	if s.kind == concurrency.KindLimiter && s.key == "" {
		p.May[total] = q.console.opts.may(q.Request, Action{Verb: SetLimit, Name: p.Name, Target: total}) == nil
		list, st, err := look(q, "keys/"+s.name, func(state *fleet.State) keyList { return keysOf(s, state.Limiters[s.name]) })
		if err != nil {
			return nil, st, err
		}
		p.Keys = &keyPage{keyList: list}
		p.Keys.Rows, p.Keys.pager = paged(q, list.keys, "keys")
		if !list.HasTotal {
			return p, st, nil
		}
	}
	state, st, err := q.statusOf(q.Context(), s)
	if err != nil && q.Context().Err() == nil {
		state, st, err = q.seen(s, err)
	}
	if err != nil {
		return nil, st, err
	}
	held, _, err := look(q, "held/"+s.String(), func(state *fleet.State) map[int64]int64 { return heldSince(s, state) })
	if err != nil {
		held = nil // then the time of the request bounds that of the grant
	}
	set, _, err := look(q, "set/"+s.String(), func(state *fleet.State) changer { return changerOf(queueIn(s, state)) })
	if err == nil {
		p.Set = set
	}
	p.May[byDefault] = clearable(q, s)
	p.fill(q, state, held)
	if p.Used == 0 && s.kind == concurrency.KindElection {
		p.Gone, _, _ = look(q, "gone/"+s.name, func(state *fleet.State) time.Time { return q.console.history.gone(state, time.Now())[s.name] })
	}
	p.remember(q.console, s, st)
	return p, st, nil
}

// remember adds the recent past of a queue, which ends with what its page shows. That of an election is its list of leaders,
// which etcd does not have.
func (p *queuePage) remember(c *console, s subject, st quality) {
	past, ok := c.history.of(s.String(), st.asOf)
	if !ok || s.kind == concurrency.KindElection {
		return
	}
	past = past.with(float64(p.Used), float64(p.waitingHere), float64(p.Most), max(0, st.asOf.Sub(cmp.Or(p.oldestWait, st.asOf)).Truncate(time.Second).Seconds()))
	waiting := "Waiting"
	if s.key != "" {
		waiting = "Waiting at this key"
	}
	p.Charts = chartsOf(past, st, c.history.every, waiting)
	if rate := past.rate(c.history.every); rate > 0 && !p.Paused && st.unconfirmed == "" { // nothing is served while etcd does not answer
		p.Turn = turn(p.Waiting, rate)
		for i, r := range p.Waiters {
			if r.nth > 0 {
				p.Waiters[i].Turn = wait(r.nth, rate)
			}
		}
	}
}

// seen returns what the namespace shows of a queue, in place of its state with the leases, which could not be read: in
// an outage of etcd, that is what was seen last.
func (q request) seen(s subject, failed error) (concurrency.Status, quality, error) {
	found, st, err := look(q, "seen/"+s.String(), func(state *fleet.State) *concurrency.Status { return statusOf(queueIn(s, state)) })
	if err != nil || found == nil {
		return concurrency.Status{}, st, failed
	}
	if st.unconfirmed == "" {
		st.unconfirmed = "the leases of the holders were not read: " + failed.Error()
	}
	return *found, st, nil
}

// queueIn returns a queue, or nil.
func queueIn(s subject, state *fleet.State) *fleet.Queue {
	if s.kind != concurrency.KindLimiter {
		kind, _ := fleet.KindOf(string(s.kind))
		return state.Queues[fleet.QueueID{Kind: kind, Name: s.name}]
	}
	switch lim := state.Limiters[s.name]; {
	case lim == nil:
		return nil
	case s.key == "":
		return lim.Total
	default:
		return lim.Keys[s.key]
	}
}

// statusOf returns the state of a queue without its leases, or nil if there is none.
func statusOf(of *fleet.Queue) *concurrency.Status {
	if of == nil {
		return nil
	}
	holders, waiters := of.Requests(0, math.MaxInt)
	return &concurrency.Status{
		Limit: int(of.Now.Limit), Stored: of.Now.Known, Unreadable: of.Now.Unreadable, Used: int(of.Now.Used), Foreign: of.Now.Foreign,
		Holders: requestsOf(holders), Waiters: requestsOf(waiters),
	}
}

func requestsOf(all []fleet.Request) (out []concurrency.Request) {
	for _, r := range all {
		out = append(out, concurrency.Request{
			Token: r.Token, Owner: r.Owner, ID: r.ID, Note: r.Note, Weight: int(r.Weight), Lease: clientv3.LeaseID(r.Lease), Requested: record.Time(r.Requested),
		})
	}
	return out
}

// changer is which operator or program has changed a limit last, by a console, the command or a program, and when.
type changer struct {
	By string // or "", if none has
	At time.Time
}

func changerOf(of *fleet.Queue) changer {
	if of == nil {
		return changer{}
	}
	by, at := of.LimitChange()
	return changer{by, record.Time(at)}
}

// heldSince returns the earliest times of the grants of a queue's holders, by their tokens.
func heldSince(s subject, state *fleet.State) map[int64]int64 {
	of := queueIn(s, state)
	if lim := state.Limiters[s.name]; s.kind == concurrency.KindLimiter && lim != nil && lim.Total != nil {
		of = lim.Total // where its permits are held
	}
	if of == nil {
		return nil
	}
	held := map[int64]int64{}
	holders, _ := of.Requests(math.MaxInt, math.MaxInt) // no waiters
	for _, r := range holders {
		held[r.Token] = r.Since
	}
	return held
}

// fill adds the requests of a queue.
func (p *queuePage) fill(q request, st concurrency.Status, held map[int64]int64) {
	holder := func(r concurrency.Request) requestRow {
		row := rowOf(r)
		if row.Held = record.Time(held[r.Token]); row.Held.IsZero() {
			row.Held = row.Requested
		}
		return row
	}
	p.Limit, p.Most, p.Stored, p.Paused = strconv.Itoa(st.Limit), st.Limit, st.Stored || !p.Limits, st.Stored && st.Limit == 0
	p.Unread = textOf(st.Unreadable)
	p.Used, p.Waiting, p.Foreign = st.Used, len(st.Waiters), st.Foreign
	p.Idle = !p.Limits && p.Used+p.Waiting+p.Foreign == 0
	holders, place := paged(q, st.Holders, "holders")
	p.Holders.pager = place
	for _, r := range holders {
		p.Holders.Rows = append(p.Holders.Rows, holder(r))
	}
	waiters, place := paged(q, st.Waiters, "page")
	p.pager = place
	n := 0 // of those that wait here
	first := place.From - 1
	for i, r := range st.Waiters {
		forTotal := r.WaitsFor == concurrency.LevelTotal
		if forTotal {
			p.ForTotal += r.Weight
		} else {
			n++
			if p.oldestWait.IsZero() || r.Requested.Before(p.oldestWait) {
				p.oldestWait = r.Requested
			}
		}
		if i < first || i >= first+len(waiters) {
			continue
		}
		row := rowOf(r)
		if !forTotal {
			row.Place, row.nth = ordinal(n), n
		}
		p.Waiters = append(p.Waiters, row)
	}
	if p.waitingHere = n; n > 0 && len(st.Holders) > 0 && !p.Paused {
		oldest := holder(st.Holders[0])
		p.Blocker = &oldest
	}
}
