package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// storeRow is a store of requests.
type storeRow struct {
	Name   string
	Counts []stateRow // by state, in the order of the page
}

// storeList is the list of the stores.
type storeList struct {
	States []string
	Stores []storeRow
	pager
}

// Pager returns the place in the table.
func (l storeList) Pager() pager { return l.pager }

func readStores(q request) (any, quality, error) {
	rows, st, err := look(q, "stores", storesOf)
	if err != nil {
		return nil, st, err
	}
	var l storeList
	for _, s := range shownStates {
		l.States = append(l.States, s.String())
	}
	l.Stores, l.pager = paged(q, rows, "page")
	return l, st, nil
}

// counted are the counts of a state as Store.List has it. What a lost attempt has done is unknown; if the next
// duplicate may take it over, that needs no operator.
var counted = map[idempotency.State][]fleet.Stage{
	idempotency.Unknown: {fleet.Unknown, fleet.Orphaned}, idempotency.InProgress: {fleet.InProgress}, idempotency.Failed: {fleet.Failed},
	idempotency.Unreadable: {fleet.Unreadable}, idempotency.Released: {fleet.Released}, idempotency.Done: {fleet.Done},
}

// storesOf returns the stores, those with the most requests of unknown outcome first.
func storesOf(s *fleet.State) (rows []storeRow) {
	for name, st := range s.Stores {
		row := storeRow{Name: name}
		for _, state := range shownStates {
			n := 0
			for _, stage := range counted[state] {
				n += st.Count[stage]
			}
			row.Counts = append(row.Counts, stateRow{Value: int(state), Label: state.String(), Count: n, Bad: st.Count[counted[state][0]] > 0 && wants(state)})
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b storeRow) int {
		return cmp.Or(cmp.Compare(b.Counts[0].Count, a.Counts[0].Count), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// wants reports whether requests in a state want an operator.
func wants(s idempotency.State) bool { return s == idempotency.Unknown || s == idempotency.Unreadable }

// store returns a store.
func (c *console) store(name string) (*idempotency.Store, error) {
	return idempotency.NewStore(c.sess, name, &idempotency.Options{SingleTenant: true, CacheBytes: -1})
}

// stateRow is a state that records can be selected by.
type stateRow struct {
	Value   int
	Label   string
	Current bool
	Count   int
	Bad     bool
}

// recordRow is a record.
type recordRow struct {
	Ref, State, Op, Scope, Owner, Failure string
	Attempt                               int
	Started, Ended                        time.Time
	Bad, Unknown, Deletable               bool
}

// storePage is the page of a store.
type storePage struct {
	Name    string
	States  []stateRow
	Records []recordRow
	Cut     bool // there are more than are paged
	May     map[string]bool
	pager
}

// Pager returns the place in the table.
func (p storePage) Pager() pager { return p.pager }

// storeState is what is read of a store in one state.
type storeState struct {
	records []idempotency.Record // of one page
	more    bool
}

// mostPages bounds how far the records of a store can be paged: a list has no place to begin at but its start.
const mostPages = 50

// records reads a page of the records in a state.
func (c *console) records(ctx context.Context, name string, state idempotency.State, page int) (out storeState, err error) {
	s, err := c.store(name)
	if err != nil {
		return out, err
	}
	before := page * pageSize
	for r, err := range s.List(ctx, idempotency.Filter{State: state}) {
		switch {
		case err != nil && len(out.records) > 0 && ctx.Err() != nil: // a long list
			out.more = true
			return out, nil
		case err != nil:
			return out, err
		case before > 0:
			before--
		case len(out.records) == pageSize:
			out.more = true
			return out, nil
		default:
			out.records = append(out.records, r)
		}
	}
	return out, nil
}

// shownStates are the states in the order of the page: those first that want an operator.
var shownStates = []idempotency.State{idempotency.Unknown, idempotency.InProgress, idempotency.Failed, idempotency.Unreadable, idempotency.Released, idempotency.Done}

func readStore(q request) (any, quality, error) {
	name := q.name()
	n, _ := strconv.Atoi(q.URL.Query().Get("state"))
	state := idempotency.State(n)
	if !slices.Contains(shownStates, state) {
		state = shownStates[0]
	}
	page := min(q.page("page"), mostPages-1)
	key := fmt.Sprintf("store/%d/%d/%s", state, page, name)
	found, st, err := read(q, key, func(ctx context.Context) (storeState, error) { return q.console.records(ctx, name, state, page) })
	if err != nil {
		return nil, st, err
	}
	p := storePage{Name: name, May: q.offers("requests/"+name, Resolve, Delete)}
	p.pager = placed(q, "page", page, len(found.records), found.more && page < mostPages-1)
	p.Cut = found.more && page == mostPages-1
	for _, s := range shownStates {
		p.States = append(p.States, stateRow{Value: int(s), Label: s.String(), Current: s == state})
	}
	for _, r := range found.records {
		p.Records = append(p.Records, recordRow{
			Ref: string(r.Ref), State: r.State.String(), Op: r.Op, Scope: r.Scope, Owner: r.Owner, Failure: r.Failure, Attempt: r.Attempt,
			Started: r.Started, Ended: r.Ended, Bad: wants(r.State),
			Unknown: r.State == idempotency.Unknown, Deletable: r.State != idempotency.InProgress,
		})
	}
	return p, st, nil
}
