package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Note                                  string
	Attempt                               int
	Started, Ended                        time.Time
	Bad, Resolvable, Deletable            bool
	Resolve                               string // what the action is called
}

// storePage is the page of a store.
type storePage struct {
	Name    string
	States  []stateRow
	Records []recordRow
	Known   bool // whether etcd has anything of it
	May     map[string]bool
	pager
}

// Pager returns the place in the table.
func (p storePage) Pager() pager { return p.pager }

// storeState is what the namespace shows of a store.
type storeState struct {
	known  bool
	counts map[idempotency.State]int
	refs   []string // of the records in one state
	sort   sync.Once
}

// sorted returns the references in an order that does not change.
func (s *storeState) sorted() []string {
	s.sort.Do(func() { slices.Sort(s.refs) })
	return s.refs
}

// storeOf returns a store, with the references of its records in a state.
func storeOf(s *fleet.State, name string, state idempotency.State) *storeState {
	st := s.Stores[name]
	if st == nil {
		return &storeState{}
	}
	out := &storeState{known: true, counts: map[idempotency.State]int{}}
	for state, stages := range counted {
		for _, stage := range stages {
			out.counts[state] += st.Count[stage]
		}
	}
	if out.counts[state] > 0 {
		out.refs = st.Refs(counted[state]...)
	}
	return out
}

// records reads the records with these references, as far as they are in a state still.
func (c *console) records(ctx context.Context, name string, state idempotency.State, refs []string) (out []idempotency.Record, err error) {
	s, err := c.store(name)
	if err != nil {
		return nil, err
	}
	f := idempotency.Filter{State: state, Refs: []idempotency.Ref{}}
	for _, ref := range refs {
		f.Refs = append(f.Refs, idempotency.Ref(ref))
	}
	for r, err := range s.List(ctx, f) {
		if err != nil {
			return nil, err
		}
		out = append(out, r)
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
	of, st, err := look(q, fmt.Sprintf("store/%d/%s", state, name), func(s *fleet.State) *storeState { return storeOf(s, name, state) })
	if err != nil {
		return nil, st, err
	}
	refs, place := paged(q, of.sorted(), "page")
	var found []idempotency.Record
	if len(refs) > 0 {
		found, st, err = read(q, fmt.Sprintf("records/%d/%d/%s", state, place.From, name), func(ctx context.Context) ([]idempotency.Record, error) {
			return q.console.records(ctx, name, state, refs)
		})
		if err != nil {
			return nil, st, err
		}
	}
	p := storePage{Name: name, May: q.offers("requests/"+name, Resolve, Delete), Known: of.known, pager: place}
	for _, s := range shownStates {
		p.States = append(p.States, stateRow{Value: int(s), Label: s.String(), Current: s == state, Count: of.counts[s]})
	}
	for _, r := range found {
		resolve := "Resolve"
		if r.State != idempotency.Unknown {
			resolve = "Correct"
		}
		p.Records = append(p.Records, recordRow{
			Ref: string(r.Ref), State: r.State.String(), Op: r.Op, Scope: r.Scope, Owner: r.Owner, Failure: r.Failure, Note: r.Note, Attempt: r.Attempt,
			Started: r.Started, Ended: r.Ended, Bad: wants(r.State),
			Resolvable: resolvable(r), Resolve: resolve, Deletable: r.State != idempotency.InProgress,
		})
	}
	return p, st, nil
}
