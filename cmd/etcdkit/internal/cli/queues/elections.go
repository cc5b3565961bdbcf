package queues

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Elections returns the verb elections.
func Elections(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "elections",
		Short:   "List the elections with their leaders, or ask a leader to step down",
		Example: "etcdkit elections -N payments\netcdkit elections step-down -N payments shard-7 --reason 'move to another zone'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.Open(cmd.Context(), "elections", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				return listElections(ctx, c, sess)
			})
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
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := queue.Parse(args[0])
			switch {
			case err != nil:
				return err
			case named.Kind != "" && named.Kind != concurrency.KindElection:
				return exit.Usagef("%q is no election", args[0])
			case cmd.Flags().Changed("token") && token <= 0:
				return exit.Usagef("--token %d is not positive", token)
			}
			return stepDown(cmd.Context(), c, named.Name, token, reason)
		},
	}
	down.Flags().Int64Var(&token, "token", 0, "token of the leader's term: no other leader is asked")
	down.Flags().StringVar(&reason, "reason", "", "why, for the leader, its log and the list of changes")
	cmd.AddCommand(down)
	return cmd
}

// stepDown asks the present leader to step down, the one with a token if it is not 0.
func stepDown(ctx context.Context, c *verb.Call, name string, token int64, reason string) error {
	var leader concurrency.Leader
	candidates := 0
	err := c.Open(ctx, "step-down", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		el, err := concurrency.NewElection(sess, name)
		if err != nil {
			return err
		}
		st, err := el.Status(ctx)
		leader, candidates = leaderOf(st), len(st.Holders)+len(st.Waiters)
		return err
	})
	switch {
	case err != nil:
		return err
	case !leader.Elected():
		return fmt.Errorf("election/%s has no leader, and no process was asked ('etcdkit elections' lists the elections)", name)
	case token != 0 && token != leader.Token:
		return fmt.Errorf("election/%s: token %d is not the leader's, and no process was asked; %s leads, with token %d", name, token,
			leader.Owner, leader.Token)
	}
	if err := c.Confirm(ctx, fmt.Sprintf("Ask %s, which leads election/%s with token %d, to step down", leader.Owner, name,
		leader.Token)); err != nil {
		return err
	}
	return c.Session(ctx, "step-down", func(ctx context.Context, sess *concurrency.Session) error {
		el, err := concurrency.NewElection(sess, name)
		if err != nil {
			return err
		}
		if err := el.RequestStop(ctx, leader.Token, reason); errors.Is(err, concurrency.ErrNotHeld) {
			return fmt.Errorf("election/%s: the term of %s with token %d has ended by itself, and no process was asked", name, leader.Owner,
				leader.Token)
		} else if err != nil {
			return err
		}
		verb.Account(ctx, c, sess, record.Change{Verb: "request-stop", Name: "election/" + name, Target: strconv.FormatInt(leader.Token, 10), Reason: reason})
		return c.PrintChange(showLeader(name, leader, candidates), func(t *output.Table) {
			t.Line(fmt.Sprintf("election/%s: %s (token %d) was asked to step down", name, leader.Owner, leader.Token))
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
	output.Form
	Name       string        `json:"name"`
	Leader     string        `json:"leader,omitempty"`
	Token      output.Number `json:"token"`
	Note       string        `json:"note,omitempty"`
	Requested  time.Time     `json:"requested,omitzero"`
	Candidates int           `json:"candidates"` // the leader is one of them
	Revision   output.Number `json:"revision"`
}

func showLeader(name string, l concurrency.Leader, candidates int) shownElection {
	return shownElection{output.FormOf("election"), name, l.Owner, output.Number(l.Token), l.Note, l.Requested.UTC(), candidates,
		output.Number(l.Revision)}
}

func listElections(ctx context.Context, c *verb.Call, sess *concurrency.Session) error {
	state, err := c.Queues(ctx, sess, engine.Of(sess).Space().Queues(keyspace.Election))
	if err != nil {
		return err
	}
	all := []shownElection{}
	for id, q := range state.Queues {
		l, candidates := concurrency.Leader{Revision: state.Revision()}, q.Now.Waiting
		if holders, _ := q.Requests(0, 1); len(holders) > 0 {
			candidates++
			l.Owner, l.Token, l.Note, l.Requested = holders[0].Owner, holders[0].Token, holders[0].Note, record.Time(holders[0].Requested).UTC()
		}
		if candidates > 0 { // else it has foreign keys alone
			all = append(all, showLeader(id.Name, l, candidates))
		}
	}
	slices.SortFunc(all, func(a, b shownElection) int { return strings.Compare(a.Name, b.Name) })
	if len(all) == 0 {
		fmt.Fprintf(c.Std.Err, "etcd has no election with a candidate in namespace %s: 'etcdkit ls' without -N lists the namespaces\n", output.ShellWord(c.Etcd.Namespace))
	}
	return c.Print(struct {
		output.Form
		Elections []shownElection `json:"elections"`
	}{output.FormOf("elections"), all}, func(t *output.Table) {
		t.Row("ELECTION", "LEADER", "TOKEN", "CANDIDATES", "NOTE")
		for _, e := range all {
			t.Row(e.Name, output.OrDash(e.Leader), int64(e.Token), e.Candidates, output.OrDash(e.Note))
		}
	})
}
