package requests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/record"
)

// one runs fn with a store, bounded by --command-timeout.
func one(ctx context.Context, c *verb.Call, as, name string, fn func(context.Context, *idempotency.Store) error) error {
	return changeOne(ctx, c, as, name, func(ctx context.Context, _ *concurrency.Session, s *idempotency.Store) error { return fn(ctx, s) })
}

// changeOne is one for a change, which the session accounts for.
func changeOne(
	ctx context.Context, c *verb.Call, as, name string, fn func(context.Context, *concurrency.Session, *idempotency.Store) error,
) error {
	return changing(ctx, c, as, name, func(ctx context.Context, sess *concurrency.Session, s *idempotency.Store) error {
		ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
		defer cancel()
		return fn(ctx, sess, s)
	})
}

func requestGet(c *verb.Call) *cobra.Command {
	var content bool
	cmd := &cobra.Command{
		Use:   "get STORE REF",
		Short: "Show the record of a request",
		Long: `Show the record of a request. Its result may be a secret, such as a customer's data: its size is shown, and
its content with --show-result alone. A result that the services store through a Codec, such as an
encryption, cannot be read by this command.`,
		Example: "etcdkit requests get -N payments orders c0535e4be2b79ffd/rE6fr...",
		Args:    verb.Arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return one(cmd.Context(), c, "requests get", args[0], func(ctx context.Context, s *idempotency.Store) error {
				r, out, err := s.Get(ctx, idempotency.Ref(args[1]))
				if err != nil && (content || !errors.Is(err, idempotency.ErrUnreadable) || r.Ref == "") {
					return err
				}
				return printRecord(c, showRecord(r), out, content)
			})
		},
	}
	cmd.Flags().BoolVar(&content, "show-result", false, "show the content of the result, too")
	return cmd
}

// printRecord prints a record, with the content of its outcome if that is asked for.
func printRecord(c *verb.Call, r shownRecord, out *idempotency.Outcome, content bool) error {
	v := struct {
		shownRecord
		Result *string `json:"result,omitempty"`
		Binary []byte  `json:"result_base64,omitempty"` // if it is no text
	}{shownRecord: r}
	if content && out != nil {
		if utf8.Valid(out.Value) {
			v.Result = new(string(out.Value))
		} else {
			v.Binary = out.Value
		}
	}
	return c.Print(v, func(t *output.Table) {
		r.tableOf(t)
		switch {
		case r.Omitted:
			t.Row("result", "not kept")
		case v.Result != nil:
			t.Row("result", *v.Result)
		case v.Binary != nil:
			t.Row("result", fmt.Sprintf("%q", v.Binary))
		default:
			t.Row("result", fmt.Sprintf("%d bytes", r.Bytes))
		}
	})
}

// tableOf writes a record without its result.
func (r shownRecord) tableOf(t *output.Table) {
	t.Row("ref", r.Ref)
	t.Row("state", r.State)
	t.Row("policy", policyOf(r.Refuse))
	t.Row("scope", output.OrDash(r.Scope))
	t.Row("op", output.OrDash(r.Op))
	t.Row("via", output.OrDash(r.Via))
	if r.Returns != "" {
		t.Row("returns", r.Returns)
	}
	t.Row("note", output.OrDash(r.Note))
	t.Row("attempt", r.Attempt)
	if r.Token != 0 {
		t.Row("token", int64(r.Token))
	}
	t.Row("owner", output.OrDash(r.Owner))
	if r.State == nameOf(idempotency.Unknown) {
		t.Row("process", map[bool]string{
			true:  "lives, and may still be working",
			false: "it has no session: it has ended, or is cut off from etcd or paused",
		}[r.Alive])
	}
	if len(r.Steps) > 0 {
		t.Row("steps", strings.Join(r.Steps, ", "))
	}
	t.Row("started", output.Instant(r.Started))
	t.Row("ended", output.Instant(r.Ended))
	t.Row("failure", output.OrDash(r.Failure))
	t.Row("resolved by", output.OrDash(r.Resolved))
	for _, was := range r.Earlier {
		t.Row("before that", strings.TrimSuffix(fmt.Sprintf("%s, by %s, %s: %s", was.State, was.By, output.Instant(was.At), was.Failure), ": "))
	}
	if r.Codec != "" {
		t.Row("codec", r.Codec)
	}
	t.Row("revision", int64(r.Revision))
}

// examined is the record of a request that is to be changed, as it was when its operator looked at it.
type examined struct {
	store, ref string
	revision   int64 // that was given, or 0
	force      bool  // also while the process of a lost attempt lives
	reason     string
}

// define adds the flags of the revision and of a process that lives.
func (e *examined) define(cmd *cobra.Command, force string) {
	cmd.Flags().Int64Var(&e.revision, "revision", 0, "revision of the record that was examined: it is not changed if it has another one")
	cmd.Flags().BoolVar(&e.force, "force", false, force)
	cmd.Flags().StringVar(&e.reason, "reason", "", "why, for the list of changes, which has the change also without one")
}

// change returns the record of a change, as the list of changes has those of a console.
func (e *examined) change(do string, r idempotency.Record, after string) record.Change {
	return record.Change{Verb: do, Name: "requests/" + e.store, Target: string(r.Ref), Before: r.State.String(), After: after, Reason: e.reason}
}

// options are those of the change of the record that was examined.
func (e *examined) options(r idempotency.Record) []idempotency.ChangeOption {
	opts := []idempotency.ChangeOption{idempotency.OnlyRevision(r.Revision)}
	if e.force {
		opts = append(opts, idempotency.EvenIfAlive())
	}
	return opts
}

// spares returns an error if a change would let a request run again while its lost attempt may be at work.
func (e *examined) spares(r idempotency.Record) error {
	if r.State != idempotency.InProgress && r.Alive && !e.force {
		return fmt.Errorf("%s: %w, so the attempt may still be working; nothing was changed", e.is(r), idempotency.ErrAlive)
	}
	return nil
}

// is describes a record.
func (e *examined) is(r idempotency.Record) string {
	text := fmt.Sprintf("request %s of store %s is %s, attempt %d by %s, revision %d", r.Ref, e.store, nameOf(r.State), r.Attempt,
		output.OrDash(r.Owner), r.Revision)
	if r.Note != "" {
		text += fmt.Sprintf(", note %q", r.Note)
	}
	return text
}

// confirmed asks whether a record is to be changed, as it is now, and returns it. Without a terminal, the revision must
// have been given. fits returns the question, or why the record is not to be changed in that way.
func confirmed(
	ctx context.Context, c *verb.Call, e *examined, as string, fits func(idempotency.Record) (string, error),
) (r idempotency.Record, err error) {
	if e.revision < 0 {
		return r, exit.Usagef("--revision %d is not positive", e.revision)
	}
	err = one(ctx, c, as, e.store, func(ctx context.Context, s *idempotency.Store) (err error) {
		r, _, err = s.Get(ctx, idempotency.Ref(e.ref))
		if errors.Is(err, idempotency.ErrUnreadable) && r.Ref != "" {
			err = nil
		}
		return err
	})
	if err != nil {
		return r, err
	}
	now := e.is(r)
	if e.revision != 0 && e.revision != r.Revision {
		return r, fmt.Errorf("%s: it has changed since revision %d; nothing was changed", now, e.revision)
	}
	question, err := fits(r)
	if err != nil {
		return r, err
	}
	if e.revision == 0 && !c.Asks() {
		return r, exit.Usagef("%s: to change it, add --revision %d and --yes", now, r.Revision)
	}
	return r, c.Confirm(ctx, strings.ToUpper(now[:1])+now[1:]+". "+question)
}

func requestDelete(c *verb.Call) *cobra.Command {
	var which examined
	cmd := &cobra.Command{
		Use:   "delete STORE REF",
		Short: "Delete the record of a request: the next duplicate does the work again",
		Long: `Delete the record of a request that is not in progress. The next duplicate does the work again, also if it
was done. Processes that have the outcome in their cache may replay it for Options.CacheFor.

Only what the question names is deleted, or the record with --revision, as 'etcdkit requests get' prints it: if
it has changed since, nothing is deleted and the exit code is 1. With --yes, --revision is required. A request of
unknown outcome, or one that an operator has resolved, needs --force while the process of its attempt lives.`,
		Example: "etcdkit requests delete -N payments orders c0535e4be2b79ffd/rE6fr...",
		Args:    verb.Arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			which.store, which.ref = args[0], args[1]
			r, err := confirmed(cmd.Context(), c, &which, "requests delete", func(r idempotency.Record) (string, error) {
				return "Delete the record, so that the next duplicate does the work again", which.spares(r)
			})
			if err != nil {
				return err
			}
			return changeOne(cmd.Context(), c, "requests delete", args[0], func(ctx context.Context, sess *concurrency.Session, s *idempotency.Store) error {
				if err := s.Delete(ctx, idempotency.Ref(args[1]), which.options(r)...); err != nil {
					return err
				}
				verb.Record(ctx, c, sess, which.change("delete", r, ""))
				return c.PrintChange(struct {
					output.Form
					Ref     string `json:"ref"`
					Deleted bool   `json:"deleted"`
				}{output.FormOf("request-deleted"), args[1], true}, func(t *output.Table) { t.Line("deleted " + args[1]) })
			})
		},
	}
	which.define(cmd, "also while the process of a lost attempt lives")
	return cmd
}
