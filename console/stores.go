package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// storeRow is a store of requests.
type storeRow struct {
	Name    string
	Refused int        // of unknown outcome, whose duplicates wait for an operator
	Counts  []stateRow // by state, in the order of the page

	Unreadable int // records
}

// storeList is the list of the stores.
type storeList struct {
	States []string
	Stores []storeRow
	Chips  []chips
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
	has := func(i int) func(storeRow) bool { return func(r storeRow) bool { return r.Counts[i].Count > 0 } }
	choices := []choice[storeRow]{{"refused", "for an operator", true, func(r storeRow) bool { return r.Refused > 0 }}}
	for i, state := range shownStates {
		choices = append(choices, choice[storeRow]{name: state.String(), label: state.String(), is: has(i)})
	}
	rows, states := choose(q, "show", "State", rows, choices)
	l.Chips = []chips{states}
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
		row := storeRow{Name: name, Refused: st.Count[fleet.Unknown], Unreadable: st.Count[fleet.Unreadable]}
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
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Unreadable, a.Unreadable), cmp.Compare(b.Counts[0].Count, a.Counts[0].Count), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// sideStores are the names beside the page of a store.
func sideStores(_ *console, s *fleet.State) (out []sideRow) {
	for _, r := range storesOf(s) {
		row := sideRow{Name: r.Name, Href: pageOf("store", r.Name), Shape: "ok", State: "in use"}
		switch {
		case r.Refused > 0:
			row.Shape, row.State = "bad", fmt.Sprintf("%d of unknown outcome", r.Refused)
		case r.Unreadable > 0:
			row.Shape, row.State = "bad", fmt.Sprintf("%d unreadable", r.Unreadable)
		}
		out = append(out, row)
	}
	return out
}

// wants reports whether requests in a state want an operator.
func wants(s idempotency.State) bool { return s == idempotency.Unknown || s == idempotency.Unreadable }

// store returns a store.
func (c *console) store(name string) (*idempotency.Store, error) {
	return idempotency.NewStore(c.sess, name, &idempotency.Options{SingleTenant: true, CacheBytes: -1})
}

// stateRow is a state that records can be selected by.
type stateRow struct {
	Value int
	Label string
	Count int
	Bad   bool
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
	Chips   []chips
	Records []recordRow
	Open    int        // of unknown outcome, whose duplicates wait for an operator
	many    url.Values // which records an action on many of them is about, or nil
	Known   bool       // whether etcd has anything of it
	May     map[string]bool
	pager
}

// Many returns the address of an action on many of the records, or "" if there is none.
func (p storePage) Many(verb Verb) string {
	if p.many == nil || !p.May[string(verb)] || verb == Resolve && p.Open == 0 || verb == Delete && p.many.Get("state") == inProgress {
		return ""
	}
	values := maps.Clone(p.many)
	values.Set("do", string(verb))
	return "bulk?" + values.Encode()
}

// inProgress is the state of which no record is deleted, in an address.
var inProgress = strconv.Itoa(int(idempotency.InProgress))

// Pager returns the place in the table.
func (p storePage) Pager() pager { return p.pager }

// storeState is what the namespace shows of a store.
type storeState struct {
	known   bool
	counts  map[idempotency.State]int
	refused int      // of unknown outcome, whose duplicates wait for an operator
	open    int      // of them, those that are selected
	refs    []string // of the records that are selected
	sort    sync.Once
}

// sorted returns the references in an order that does not change.
func (s *storeState) sorted() []string {
	s.sort.Do(func() { slices.Sort(s.refs) })
	return s.refs
}

// selection is which records of a store a page shows: those of a scope, those with a reference, or those in a state.
type selection struct {
	scope, ref string
	state      idempotency.State
	refused    bool // of them, those whose duplicates wait for an operator
}

// selectionOf reads the selection of a page's address.
func selectionOf(q request) selection {
	values := q.URL.Query()
	if s := (selection{scope: cut(values.Get("scope"), mostQuery), ref: cut(values.Get("ref"), mostQuery)}); s.scope != "" || s.ref != "" {
		return s
	}
	n, _ := strconv.Atoi(values.Get("state"))
	s := selection{state: idempotency.State(n), refused: values.Get("only") == "refused"}
	if s.refused || !slices.Contains(shownStates, s.state) {
		s.state = idempotency.Unknown
	}
	return s
}

// refs returns the references of the selected records.
func (s selection) refs(st *fleet.Store, keys keyspace.Store) []string {
	switch {
	case s.ref != "":
		return st.Find(s.ref, math.MaxInt)
	case s.scope != "":
		return st.Find(strings.TrimPrefix(keys.Scope(s.scope), keys.Records()), math.MaxInt)
	case s.refused:
		return st.Refs(fleet.Unknown)
	}
	return st.Refs(counted[s.state]...)
}

// storeOf returns a store, with the references of its selected records.
func storeOf(state *fleet.State, space keyspace.Space, name string, selected selection) *storeState {
	st := state.Stores[name]
	if st == nil {
		return &storeState{}
	}
	out := &storeState{known: true, counts: map[idempotency.State]int{}, refused: st.Count[fleet.Unknown], refs: selected.refs(st, space.Store(name))}
	if out.refused > 0 {
		open := st.Refs(fleet.Unknown)
		slices.Sort(open)
		for _, ref := range out.refs {
			if _, is := slices.BinarySearch(open, ref); is {
				out.open++
			}
		}
	}
	for state, stages := range counted {
		for _, stage := range stages {
			out.counts[state] += st.Count[stage]
		}
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
	name, selected := q.name(), selectionOf(q)
	of, st, err := look(q, fmt.Sprintf("store/%#v/%s", selected, name), func(s *fleet.State) *storeState {
		return storeOf(s, q.console.inner.Space(), name, selected)
	})
	if err != nil {
		return nil, st, err
	}
	refs, place := paged(q, of.sorted(), "page")
	var found []idempotency.Record
	if len(refs) > 0 {
		found, st, err = read(q, fmt.Sprintf("records/%#v/%d/%s", selected, place.From, name), func(ctx context.Context) ([]idempotency.Record, error) {
			return q.console.records(ctx, name, selected.state, refs)
		})
		if err != nil {
			return nil, st, err
		}
	}
	p := storePage{Name: name, May: q.offers("requests/"+name, Resolve, Delete), Known: of.known, Chips: []chips{selected.chips(name, of)}, many: selected.params(name), Open: of.open, pager: place}
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

// params returns the parameters that select the records for an action on many of them.
func (s selection) params(store string) url.Values {
	values := url.Values{"store": {store}}
	switch {
	case s.ref != "":
		return nil
	case s.scope != "":
		values.Set("scope", s.scope)
	case s.refused:
		values.Set("only", "refused")
	default:
		values.Set("state", strconv.Itoa(int(s.state)))
	}
	return values
}

// chips are the links to the records of a store by their state, and what is selected beside that.
func (s selection) chips(name string, of *storeState) chips {
	byState := s.scope == "" && s.ref == ""
	out := chips{Label: "State", Options: []option{{Label: "for an operator", Href: refusedOf(name), Count: of.refused, Counted: true, Current: s.refused, Bad: of.refused > 0}}}
	for _, state := range shownStates {
		out.Options = append(out.Options, option{
			Label: state.String(), Href: pageOf("store", name) + "&state=" + strconv.Itoa(int(state)), Count: of.counts[state], Counted: true,
			Current: byState && state == s.state && !s.refused, Bad: state == idempotency.Unreadable && of.counts[state] > 0,
		})
	}
	if !byState {
		values := url.Values{"name": {name}}
		label := "of the scope " + s.scope
		if values.Set("scope", s.scope); s.ref != "" {
			label = "with the reference " + s.ref
			values = url.Values{"name": {name}, "ref": {s.ref}}
		}
		out.Options = append(out.Options, option{Label: text(label), Href: "store?" + values.Encode(), Count: len(of.refs), Counted: true, Current: true})
	}
	return out
}
