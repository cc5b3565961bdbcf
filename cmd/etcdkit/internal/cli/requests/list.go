package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/idempotency"
)

// requestListing is what `requests list` is asked for.
type requestListing struct {
	state, scope, op string
	limit            int
}

func requestList(c *verb.Call) *cobra.Command {
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
		Example: "etcdkit requests list -N payments orders --state unknown\n" +
			"etcdkit requests list -N payments orders --scope tenant-7 --limit 0 -o json",
		Args: verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := l.filter(cmd.Flags().Changed("scope"))
			if err != nil {
				return err
			}
			found, more := []shownRecord{}, false
			err = eachRequest(cmd.Context(), c, "requests list", args[0], f, func(r idempotency.Record) bool {
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
			return c.Print(struct {
				output.Form
				Requests []shownRecord `json:"requests"`
				More     bool          `json:"more"`
			}{output.FormOf("requests"), found, more}, func(t *output.Table) { l.tableOf(t, found, more) })
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
		return f, exit.Usagef("--limit %d is negative", l.limit)
	}
	if scoped {
		f.Scope = &l.scope
	}
	return f, nil
}

// tableOf writes the requests that were found, and whether there are more.
func (l *requestListing) tableOf(t *output.Table, found []shownRecord, more bool) {
	t.Row("REF", "STATE", "POLICY", "SCOPE", "OP", "NOTE", "ATTEMPT", "OWNER", "STARTED", "FAILURE")
	for _, r := range found {
		t.Row(r.Ref, r.State, policyOf(r.Refuse), output.OrDash(r.Scope), output.OrDash(r.Op), output.OrDash(r.Note), r.Attempt,
			output.OrDash(r.Owner), output.Instant(r.Started), output.OrDash(r.Failure))
	}
	if more {
		t.Line(fmt.Sprintf("There are more than %d: --limit 0 lists all, --state, --scope and --op select.", l.limit))
	}
}

// ErrNoStore says that etcd has no request of a store.
var ErrNoStore = errors.New("etcd has no request of that store in this namespace ('etcdkit requests' lists the stores)")

// eachRequest calls fn for each request that f selects, until fn returns false, and shows progress.
func eachRequest(ctx context.Context, c *verb.Call, as, name string, f idempotency.Filter, fn func(idempotency.Record) bool) error {
	return store(ctx, c, as, name, func(ctx context.Context, s *idempotency.Store) error {
		ctx, alive, cancel := c.Patience(ctx)
		defer cancel()
		state := f.State
		f.State = 0 // so that each record that is read shows that etcd answers
		p, read := c.Progress(), 0
		defer p.End()
		for r, err := range s.List(ctx, f) {
			if err != nil {
				return verb.Because(ctx, err)
			}
			alive()
			read++
			p.Set("%d requests read", read)
			if (state == 0 || r.State == state) && !fn(r) {
				return nil
			}
		}
		p.End()
		if read == 0 && f.Scope == nil {
			return fmt.Errorf("store %q: %w", name, ErrNoStore)
		}
		return nil
	})
}

func requestStats(c *verb.Call) *cobra.Command {
	return &cobra.Command{
		Use:   "stats STORE",
		Short: "Count the requests of a store by state",
		Long: `Count the requests of a store by state, and those of unknown outcome by scope, the ten largest: bad input of one
tenant may be what makes them. All records are read, page by page; their results are read too.`,
		Example: "etcdkit requests stats -N payments orders",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			counts, unknown := map[string]int{}, map[string]int{}
			all, bytes := 0, 0
			err := eachRequest(cmd.Context(), c, "requests stats", args[0], idempotency.Filter{}, func(r idempotency.Record) bool {
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
			return c.Print(struct {
				output.Form
				Name     string         `json:"name"`
				Requests int            `json:"requests"`
				Bytes    int            `json:"result_bytes"`
				States   map[string]int `json:"states"`
				Unknown  []scopeCount   `json:"unknown_by_scope"`
			}{output.FormOf("request-stats"), args[0], all, bytes, counts, largest(unknown)}, func(t *output.Table) {
				for _, s := range states {
					t.Row(s.name, counts[s.name])
				}
				t.Row("all", all)
				t.Row("bytes of results", bytes)
				for _, of := range largest(unknown) {
					t.Row("unknown of scope "+output.OrDash(of.Scope), of.Requests)
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
	slices.SortFunc(all, func(c, b scopeCount) int {
		return cmp.Or(cmp.Compare(b.Requests, c.Requests), strings.Compare(c.Scope, b.Scope))
	})
	return all[:min(len(all), mostScopes)]
}
