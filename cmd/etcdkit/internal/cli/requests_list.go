package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/idempotency"
)

// requestListing is what `requests list` is asked for.
type requestListing struct {
	state, scope, op string
	limit            int
}

func (a *app) requestList() *cobra.Command {
	var l requestListing
	cmd := &cobra.Command{
		Use:   "list STORE",
		Short: "List the requests of a store",
		Long: `List the requests of a store, in no particular order. A store of which etcd has no request is not found: the exit
code is 1.

unknown is a request whose latest attempt was lost: its process died during the work, or the work ended in a way that
does not show what it did. If POLICY is refuse, duplicates are refused until 'requests resolve'; with take-over the next
duplicate repeats the work. NOTE is what the services say about a request, such as an order number.
released is a request whose function returned an error, so that the next duplicate repeats it.`,
		Example: "etcdkit requests list -N payments orders --state unknown\netcdkit requests list -N payments orders --scope tenant-7 --limit 0 -o json",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := l.filter(cmd.Flags().Changed("scope"))
			if err != nil {
				return err
			}
			found, more := []shownRecord{}, false
			err = a.eachRequest(cmd.Context(), "requests list", args[0], f, func(r idempotency.Record) bool {
				if l.op != "" && r.Op != l.op {
					return true
				}
				if more = l.limit > 0 && len(found) == l.limit; more {
					return false
				}
				found = append(found, showRecord(r))
				return true
			})
			if err != nil {
				return err
			}
			return a.print(struct {
				schema
				Requests []shownRecord `json:"requests"`
				More     bool          `json:"more"`
			}{schemaOf("requests"), found, more}, func(t *table) { l.tableOf(t, found, more) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.state, "state", "", "only those that are in-progress, unknown, failed, done, released or unreadable")
	f.StringVar(&l.scope, "scope", "", "only those of this scope, such as a tenant; no others are read")
	f.StringVar(&l.op, "op", "", "only those of this operation")
	f.IntVar(&l.limit, "limit", 100, "list so many at most; 0 lists all")
	return cmd
}

// filter returns what the flags select but --op, which etcd does not know. scoped is whether --scope is given: it may
// be empty.
func (l *requestListing) filter(scoped bool) (f idempotency.Filter, err error) {
	if l.state != "" {
		if f.State, err = stateNamed(l.state); err != nil {
			return f, err
		}
	}
	if l.limit < 0 {
		return f, usageError{fmt.Errorf("--limit %d is negative", l.limit)}
	}
	if scoped {
		f.Scope = &l.scope
	}
	return f, nil
}

// tableOf writes the requests that were found, and whether there are more.
func (l *requestListing) tableOf(t *table, found []shownRecord, more bool) {
	t.row("REF", "STATE", "POLICY", "SCOPE", "OP", "NOTE", "ATTEMPT", "OWNER", "STARTED", "FAILURE")
	for _, r := range found {
		t.row(r.Ref, r.State, policyOf(r.Refuse), or(r.Scope), or(r.Op), or(r.Note), r.Attempt, or(r.Owner), instant(r.Started), or(r.Failure))
	}
	if more {
		t.line(fmt.Sprintf("There are more than %d: --limit 0 lists all, --state, --scope and --op select.", l.limit))
	}
}

// eachRequest calls fn for each request that f selects, until fn returns false, and shows progress.
func (a *app) eachRequest(ctx context.Context, verb, name string, f idempotency.Filter, fn func(idempotency.Record) bool) error {
	return a.store(ctx, verb, name, func(ctx context.Context, s *idempotency.Store) error {
		ctx, alive, cancel := a.patience(ctx)
		defer cancel()
		state := f.State
		f.State = 0 // so that each record that is read shows that etcd answers
		p, read := a.progress(), 0
		defer p.end()
		for r, err := range s.List(ctx, f) {
			if err != nil {
				return because(ctx, err)
			}
			alive()
			read++
			p.set("%d requests read", read)
			if (state == 0 || r.State == state) && !fn(r) {
				return nil
			}
		}
		p.end()
		if read == 0 && f.Scope == nil {
			return fmt.Errorf("etcd has no request of store %q; 'etcdkit requests' lists the stores", name)
		}
		return nil
	})
}

func (a *app) requestStats() *cobra.Command {
	return &cobra.Command{
		Use:   "stats STORE",
		Short: "Count the requests of a store by state",
		Long: `Count the requests of a store by state, and those of unknown outcome by scope, the ten largest: bad input of one
tenant may be what makes them. All records are read, page by page; their results are read too.`,
		Example: "etcdkit requests stats -N payments orders",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			counts, unknown := map[string]int{}, map[string]int{}
			all, bytes := 0, 0
			err := a.eachRequest(cmd.Context(), "requests stats", args[0], idempotency.Filter{}, func(r idempotency.Record) bool {
				counts[nameOf(r.State)]++
				if r.State == idempotency.Unknown {
					unknown[r.Scope]++
				}
				all++
				bytes += r.Bytes
				return true
			})
			if err != nil {
				return err
			}
			for _, s := range states {
				counts[s.name] += 0
			}
			return a.print(struct {
				schema
				Name     string         `json:"name"`
				Requests int            `json:"requests"`
				Bytes    int            `json:"result_bytes"`
				States   map[string]int `json:"states"`
				Unknown  []scopeCount   `json:"unknown_by_scope"`
			}{schemaOf("request-stats"), args[0], all, bytes, counts, largest(unknown)}, func(t *table) {
				for _, s := range states {
					t.row(s.name, counts[s.name])
				}
				t.row("all", all)
				t.row("bytes of results", bytes)
				for _, of := range largest(unknown) {
					t.row("unknown of scope "+or(of.Scope), of.Requests)
				}
			})
		},
	}
}

// scopeCount is a number of requests of a scope.
type scopeCount struct {
	Scope    string `json:"scope"`
	Requests int    `json:"requests"`
}

// mostScopes is how many scopes are counted.
const mostScopes = 10

// largest returns the scopes with the most requests.
func largest(of map[string]int) []scopeCount {
	all := make([]scopeCount, 0, len(of))
	for scope, n := range of {
		all = append(all, scopeCount{scope, n})
	}
	slices.SortFunc(all, func(a, b scopeCount) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Scope, b.Scope))
	})
	return all[:min(len(all), mostScopes)]
}
