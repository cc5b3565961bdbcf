package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

func (a *app) elections() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "elections",
		Short:   "List the elections with their leaders, or ask a leader to step down",
		Example: "etcdkit elections -N payments\netcdkit elections step-down -N payments shard-7 --reason 'move to another zone'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.open(cmd.Context(), "elections", &concurrency.SessionOptions{}, a.listElections)
		},
	}
	var reason string
	var token int64
	down := &cobra.Command{
		Use:   "step-down NAME",
		Short: "Ask the leader of an election to release its term",
		Long: `Ask the leader to release its term; the command does not wait for that. Only the leader that the question
names is asked, or the one with --token, as 'etcdkit elections' prints it: never a successor. With --yes and
without --token, that is the process that leads when the command begins.

'etcdkit evict' asks the same and waits; its --force ends a term without the leader's consent.`,
		Example: "etcdkit elections step-down -N payments shard-7 --yes --reason 'move to another zone'",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parseSubject(args[0])
			switch {
			case err != nil:
				return err
			case named.kind != "" && named.kind != concurrency.KindElection:
				return usageError{fmt.Errorf("%q is no election", args[0])}
			case cmd.Flags().Changed("token") && token <= 0:
				return usageError{fmt.Errorf("--token %d is not positive", token)}
			}
			return a.stepDown(cmd.Context(), named.name, token, reason)
		},
	}
	down.Flags().Int64Var(&token, "token", 0, "token of the leader's term: no other leader is asked")
	down.Flags().StringVar(&reason, "reason", "", "why, for the leader and its log")
	cmd.AddCommand(down)
	return cmd
}

// stepDown asks the present leader to step down, the one with a token if it is not 0.
func (a *app) stepDown(ctx context.Context, name string, token int64, reason string) error {
	var leader concurrency.Leader
	candidates := 0
	err := a.open(ctx, "step-down", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		el, err := concurrency.NewElection(sess, name)
		if err != nil {
			return err
		}
		st, err := el.Status(ctx)
		leader, candidates = leaderOf(st), len(st.Waiters)
		return err
	})
	switch {
	case err != nil:
		return err
	case !leader.Elected():
		return fmt.Errorf("election/%s has no leader, and no process was asked ('etcdkit elections' lists the elections)", name)
	case token != 0 && token != leader.Token:
		return fmt.Errorf("election/%s: token %d is not the leader's, and no process was asked; %s leads, with token %d", name, token, leader.Owner, leader.Token)
	}
	if err := a.confirm(ctx, fmt.Sprintf("Ask %s, which leads election/%s with token %d, to step down", leader.Owner, name, leader.Token)); err != nil {
		return err
	}
	return a.session(ctx, "step-down", func(ctx context.Context, sess *concurrency.Session) error {
		el, err := concurrency.NewElection(sess, name)
		if err != nil {
			return err
		}
		if err := el.RequestStop(ctx, leader.Token, reason); errors.Is(err, concurrency.ErrNotHeld) {
			return fmt.Errorf("election/%s: the term of %s with token %d has ended by itself, and no process was asked", name, leader.Owner, leader.Token)
		} else if err != nil {
			return err
		}
		return a.printChange(showLeader(name, leader, candidates), func(t *table) {
			t.line(fmt.Sprintf("election/%s: %s (token %d) was asked to step down", name, leader.Owner, leader.Token))
		})
	})
}

// leaderOf returns the leader of an election.
func leaderOf(st concurrency.Status) concurrency.Leader {
	if len(st.Holders) == 0 {
		return concurrency.Leader{Revision: st.Revision}
	}
	h := st.Holders[0]
	return concurrency.Leader{Token: h.Token, Owner: h.Owner, Note: h.Note, Lease: h.Lease, Requested: h.Requested, Revision: st.Revision}
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
	state, err := a.queues(ctx, sess, engine.Of(sess).Space().Queues(keyspace.Election))
	if err != nil {
		return err
	}
	all := []shownElection{}
	for id, q := range state.Queues {
		l := concurrency.Leader{Revision: state.Revision()}
		if holders, _ := q.Requests(0, 1); len(holders) > 0 {
			l.Owner, l.Token, l.Note, l.Requested = holders[0].Owner, holders[0].Token, holders[0].Note, record.Time(holders[0].Requested).UTC()
		}
		if l.Elected() || q.Now.Waiting > 0 { // else it has foreign keys alone
			all = append(all, showLeader(id.Name, l, q.Now.Waiting))
		}
	}
	slices.SortFunc(all, func(a, b shownElection) int { return strings.Compare(a.Name, b.Name) })
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
