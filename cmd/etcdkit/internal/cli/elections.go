package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
)

func (a *app) elections() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "elections",
		Short:   "List the elections with their leaders, or ask a leader to step down",
		Example: "etcdkit elections -N payments\netcdkit elections step-down -N payments shard-7 --reason 'move to another zone'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.open(engine.Reader(cmd.Context()), "elections", &concurrency.SessionOptions{}, a.listElections)
		},
	}
	var reason string
	down := &cobra.Command{
		Use:   "step-down NAME",
		Short: "Ask the leader of an election to release its term",
		Long: `Ask the leader to release its term; the command does not wait for that. A successor is never asked.
'etcdkit evict --force' ends a term without the leader's consent.`,
		Example: "etcdkit elections step-down -N payments shard-7 --yes --reason 'move to another zone'",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parseSubject(args[0])
			if err == nil && named.kind != "" && named.kind != concurrency.KindElection {
				err = usageError{fmt.Errorf("%q is no election", args[0])}
			}
			if err == nil {
				err = a.confirm(cmd.Context(), fmt.Sprintf("Ask the leader of %s to step down", named.name))
			}
			if err != nil {
				return err
			}
			return a.session(cmd.Context(), "step-down", func(ctx context.Context, sess *concurrency.Session) error {
				el, err := concurrency.NewElection(sess, named.name)
				if err != nil {
					return err
				}
				st, err := el.Status(ctx)
				if err != nil {
					return err
				}
				asked, err := el.StepDown(ctx, reason)
				if err != nil {
					return err
				}
				if !asked.Elected() {
					return fmt.Errorf("election/%s has no leader, and no process was asked ('etcdkit elections' lists the elections)", named.name)
				}
				return a.print(showLeader(named.name, asked, len(st.Waiters)), func(t *table) {
					t.line(fmt.Sprintf("election/%s: %s (token %d) was asked to step down", named.name, asked.Owner, asked.Token))
				})
			})
		},
	}
	down.Flags().StringVar(&reason, "reason", "", "why, for the leader and its log")
	cmd.AddCommand(down)
	return cmd
}

// shownElection is an election as JSON.
type shownElection struct {
	schema
	Name       string    `json:"name"`
	Leader     string    `json:"leader,omitempty"`
	Token      number    `json:"token"`
	Note       string    `json:"note,omitempty"`
	Requested  time.Time `json:"requested,omitzero"`
	Candidates int       `json:"candidates"`
	Revision   number    `json:"revision"`
}

func showLeader(name string, l concurrency.Leader, candidates int) shownElection {
	return shownElection{schemaOf("election"), name, l.Owner, number(l.Token), l.Note, l.Requested.UTC(), candidates, number(l.Revision)}
}

func (a *app) listElections(ctx context.Context, sess *concurrency.Session) error {
	all := []shownElection{}
	ctx, alive, cancel := a.patience(ctx) // there may be many
	defer cancel()
	for q, err := range sess.Queues(ctx) {
		if err != nil {
			return because(ctx, err)
		}
		alive()
		if q.Kind != concurrency.KindElection {
			continue
		}
		el, err := concurrency.NewElection(sess, q.Name)
		if err != nil {
			return err
		}
		st, err := el.Status(ctx)
		if err != nil {
			return because(ctx, err)
		}
		l := concurrency.Leader{Revision: st.Revision}
		if len(st.Holders) > 0 {
			h := st.Holders[0]
			l = concurrency.Leader{Token: h.Token, Owner: h.Owner, Note: h.Note, Lease: h.Lease, Requested: h.Requested, Revision: st.Revision}
		}
		all = append(all, showLeader(q.Name, l, len(st.Waiters)))
	}
	return a.print(struct {
		schema
		Elections []shownElection `json:"elections"`
	}{schemaOf("elections"), all}, func(t *table) {
		t.row("ELECTION", "LEADER", "TOKEN", "CANDIDATES", "NOTE")
		for _, e := range all {
			t.row(e.Name, or(e.Leader), int64(e.Token), e.Candidates, or(e.Note))
		}
	})
}
