package permits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// Release returns the verb release.
func Release(c *verb.Call) *cobra.Command {
	var which released
	cmd := &cobra.Command{
		Use:   "release NAME --id ID",
		Short: "Release the permit with an ID, on behalf of its holder",
		Long: `Release the permit with this ID: that of 'etcdkit hold', or of a program that has acquired it with an ID.
The work must have ended. The holder's context ends, if it still runs. A request that waits is withdrawn. That of
'etcdkit run' is not released: its command may still work, and 'etcdkit evict' asks it to end.

If no live request has the ID, the command exits with 1: it was released before, or its time has passed,
and the work may have overlapped with another holder's. A later hold may have the same ID by then: with --token,
as hold has printed it, the permit of that is not released, and the code is 1 too.`,
		Example: "etcdkit release -N deploy production --id deploy-42\netcdkit release -N deploy production --id deploy-42 --token 4711",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := queue.Parse(args[0])
			switch {
			case err != nil:
			case which.id == "":
				err = exit.Usagef("--id is missing")
			case which.token < 0 || which.token == 0 && cmd.Flags().Changed("token"):
				err = exit.Usagef("--token %d is not positive", which.token)
			}
			if err != nil {
				return err
			}
			return c.Connected(engine.Leaseless(cmd.Context()), &concurrency.SessionOptions{Owner: verb.Owner("release")},
				func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
					ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
					defer cancel()
					s, err := named.Resolve(ctx, sess)
					if err != nil {
						return err
					}
					return releaseID(ctx, c, client, sess, s, which)
				})
		},
	}
	cmd.Flags().StringVar(&which.id, "id", "", "ID of the permit (required)")
	cmd.Flags().Int64Var(&which.token, "token", 0, "token of the permit: one with the same ID and another token is not released")
	return cmd
}

// endLease revokes the lease of a permit of 'etcdkit hold', which has ended or, as err says, could not end for want of
// space: no process has that lease or needs a notice. The process of a waiter may live, and would queue anew.
func endLease(ctx context.Context, client *clientv3.Client, s queue.Subject, holders []concurrency.Request,
	is func(concurrency.Request) bool, err error) error {
	i := slices.IndexFunc(holders, is)
	if i < 0 || !strings.HasPrefix(holders[i].Owner, holdOwner) || err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		return err
	}
	_, failed := client.Revoke(ctx, holders[i].Lease)
	switch {
	case failed == nil || errors.Is(failed, rpctypes.ErrLeaseNotFound):
		return nil
	case err == nil:
		return fmt.Errorf("%s: it has ended, but its lease could not be revoked, and expires: %w", s, failed)
	}
	return err
}

// releaser is a queue whose permits have IDs.
type releaser interface {
	ReleaseID(ctx context.Context, id string, opts ...concurrency.ReleaseOption) error
}

// released is what `release` is asked to release.
type released struct {
	id    string
	token int64 // or 0
}

// is reports whether a request may be the one. What is no text in its ID is shown as U+FFFD.
func (w released) is(r concurrency.Request) bool {
	return r.ID == string([]rune(w.id)) && (w.token == 0 || r.Token == w.token)
}

func releaseID(
	ctx context.Context, c *verb.Call, client *clientv3.Client, sess *concurrency.Session, s queue.Subject, which released,
) error {
	q, err := queue.Of(sess, s)
	if err != nil {
		return err
	}
	by, ok := q.(releaser)
	switch {
	case s.Kind == concurrency.KindLimiter && s.Key == "":
		return exit.Usagef("%s: a permit with an ID is one of a key: %s/KEY; 'etcdkit show' lists the keys", s, s)
	case !ok:
		return exit.Usagef("%s: a term has no ID by which it is released; 'etcdkit evict' asks its leader to resign", s)
	}
	st, err := q.Status(ctx)
	if err != nil {
		return err
	}
	err = fmt.Errorf("%s: %w: none has the ID %q", s, concurrency.ErrNotHeld, which.id)
	if which.token != 0 {
		err = fmt.Errorf("%w and the token %d", err, which.token)
	}
	for _, r := range slices.Concat(st.Holders, st.Waiters) {
		if !which.is(r) {
			continue
		}
		if strings.HasPrefix(r.Owner, runOwner) {
			err = fmt.Errorf("%s: the request %q is of a command that may still work (%s), and ends with that; 'etcdkit evict' asks it to "+
				"end, by its token %d", s, which.id, r.Owner, r.Token)
			continue
		}
		released := by.ReleaseID(ctx, which.id, concurrency.OnlyToken(r.Token)) // and not what has the ID by now
		if errors.Is(released, concurrency.ErrNotHeld) {
			continue // it has ended, or its ID is not text and looks like this one
		}
		err = endLease(ctx, client, s, st.Holders, func(other concurrency.Request) bool { return other.Token == r.Token }, released)
		break
	}
	if err != nil {
		return err
	}
	return c.PrintChange(struct {
		output.Form
		Name     string `json:"name"`
		ID       string `json:"id"`
		Released bool   `json:"released"`
	}{output.FormOf("released"), s.String(), which.id, true}, func(t *output.Table) {
		t.Line(fmt.Sprintf("%s: the permit %q is released", s, which.id))
	})
}
