package queues

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/record"
)

// shownChange is what an operator has changed, as JSON.
type shownChange struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Action  string    `json:"action"`
	Name    string    `json:"name"`
	Target  string    `json:"target,omitempty"`
	Before  string    `json:"before,omitempty"`
	After   string    `json:"after,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Outcome string    `json:"outcome"`          // made, failed or unknown
	Error   string    `json:"error,omitempty"`  // if it has failed
	Queues  []string  `json:"queues,omitempty"` // of an action on many
}

// Changes returns the verb changes.
func Changes(c *verb.Call) *cobra.Command {
	limit := 100
	cmd := &cobra.Command{
		Use:   "changes [NAME]",
		Short: "List what operators have changed",
		Long: `List what operators have changed by consoles, and by commands with --reason, the newest first, as long as it is
kept. NAME is KIND/NAME, job/NAME or requests/STORE, or the name alone. OUTCOME is made, failed, or unknown.`,
		Example: "etcdkit changes -N payments\netcdkit changes -N payments semaphore/charge -o json",
		Args:    verb.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return exit.Usagef("--limit %d is negative", limit)
			}
			name := ""
			if len(args) > 0 {
				if name = args[0]; name == "" {
					return exit.Usagef("NAME is empty")
				}
			}
			return listChanges(cmd.Context(), c, name, limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "show so many at most; 0 shows all")
	return cmd
}

func listChanges(ctx context.Context, c *verb.Call, name string, limit int) error {
	space, err := c.Etcd.Space()
	if err != nil {
		return err
	}
	changes, unreadable := []shownChange{}, 0
	err = c.WithClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Get(ctx, space.Changes(), clientv3.WithPrefix())
		if err != nil {
			return c.Etcd.Unreachable(err)
		}
		for _, kv := range resp.Kvs {
			switch r, ok := record.DecodeChange(kv.Value); {
			case !ok:
				unreadable++
			case isOf(r, name):
				changes = append(changes, showChange(r))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(changes, func(a, b shownChange) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Name, b.Name)) })
	more := limit > 0 && len(changes) > limit
	if more {
		changes = changes[:limit]
	}
	if unreadable > 0 {
		fmt.Fprintf(c.Std.Err, "%s cannot be read: damaged, or written by a later release, whose command shows them\n", output.Count(unreadable, "change", "changes"))
	} else if len(changes) == 0 {
		fmt.Fprintln(c.Std.Err, "no change is recorded: a console records its actions, a command one with --reason")
	}
	return c.Print(struct {
		output.Form
		Changes []shownChange `json:"changes"`
		More    bool          `json:"more"`

		Unreadable int `json:"unreadable"` // of any name
	}{output.FormOf("changes"), changes, more, unreadable}, func(t *output.Table) {
		t.Row("WHEN", "BY", "ACTION", "OF", "TARGET", "BEFORE", "AFTER", "REASON", "OUTCOME")
		for _, r := range changes {
			outcome := r.Outcome
			if r.Error != "" {
				outcome += ": " + r.Error
			}
			t.Row(output.Instant(r.At), operatorOf(r.By), r.Action, r.Name, output.OrDash(r.Target), output.OrDash(r.Before), output.OrDash(r.After),
				output.OrDash(r.Reason), outcome)
		}
		if more {
			t.Line(fmt.Sprintf("There are more than %d: --limit 0 lists all.", limit))
		}
	})
}

// isOf reports whether a change is of what has a name: with its kind or without, a limiter with its keys; "" is all.
func isOf(c record.Change, name string) bool {
	is := func(full string) bool {
		kind, bare, _ := strings.Cut(full, "/")
		return full == name || bare == name || kind == "limiter" && strings.HasPrefix(bare, strings.TrimPrefix(name, "limiter/")+"/")
	}
	return name == "" || is(c.Name) || slices.ContainsFunc(c.Queues, is)
}

func showChange(c record.Change) shownChange {
	out := shownChange{
		At: record.Time(c.AtMS).UTC(), By: c.By, Action: c.Verb, Name: c.Name, Target: c.Target, Before: c.Before, After: c.After,
		Reason: c.Reason, Outcome: "made", Error: c.Failed, Queues: c.Queues,
	}
	switch {
	case c.Open:
		out.Outcome = "unknown"
	case c.Failed != "":
		out.Outcome = "failed"
	}
	return out
}
