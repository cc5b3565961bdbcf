package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/idempotency"
)

// one runs fn with a store, bounded by --command-timeout.
func (a *app) one(ctx context.Context, verb, name string, fn func(context.Context, *idempotency.Store) error) error {
	return a.store(ctx, verb, name, func(ctx context.Context, s *idempotency.Store) error {
		ctx, cancel := context.WithTimeout(ctx, a.etcd.timeout)
		defer cancel()
		return fn(ctx, s)
	})
}

func (a *app) requestGet() *cobra.Command {
	var content bool
	cmd := &cobra.Command{
		Use:   "get STORE REF",
		Short: "Show the record of a request",
		Long: `Show the record of a request. Its result may be a secret, such as a customer's data: its size is shown, and
its content with --show-result alone. A result that the services store through a Codec, such as an
encryption, cannot be read by this command.`,
		Example: "etcdkit requests get -N payments orders c0535e4be2b79ffd/rE6fr...",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.one(cmd.Context(), "requests get", args[0], func(ctx context.Context, s *idempotency.Store) error {
				r, out, err := s.Get(ctx, idempotency.Ref(args[1]))
				if err != nil && (content || !errors.Is(err, idempotency.ErrUnreadable) || r.Ref == "") {
					return err
				}
				return a.printRecord(showRecord(r), out, content)
			})
		},
	}
	cmd.Flags().BoolVar(&content, "show-result", false, "show the content of the result, too")
	return cmd
}

// printRecord prints a record, with the content of its outcome if that is asked for.
func (a *app) printRecord(r shownRecord, out *idempotency.Outcome, content bool) error {
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
	return a.print(v, func(t *table) {
		t.row("ref", r.Ref)
		t.row("state", r.State)
		t.row("scope", or(r.Scope))
		t.row("op", or(r.Op))
		t.row("attempt", r.Attempt)
		if r.Token != 0 {
			t.row("token", int64(r.Token))
		}
		t.row("owner", or(r.Owner))
		t.row("started", instant(r.Started))
		t.row("ended", instant(r.Ended))
		t.row("failure", or(r.Failure))
		t.row("resolved by", or(r.Resolved))
		t.row("revision", int64(r.Revision))
		switch {
		case r.Omitted:
			t.row("result", "not kept")
		case v.Result != nil:
			t.row("result", *v.Result)
		case v.Binary != nil:
			t.row("result", fmt.Sprintf("%q", v.Binary))
		default:
			t.row("result", fmt.Sprintf("%d bytes", r.Bytes))
		}
	})
}

// resolution is what `resolve` is asked to record.
type resolution struct {
	done, failed string
	notDone      bool
}

// mostResult bounds what is read of a result, in bytes: etcd takes no larger request.
const mostResult = 1 << 20

// examined is the record of a request that is to be changed, as it was when its operator looked at it.
type examined struct {
	store, ref string
	revision   int64 // that was given, or 0
}

// define adds the flag of the revision.
func (e *examined) define(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&e.revision, "revision", 0, "revision of the record that was examined: it is not changed if it has another one")
}

// confirmed asks whether a record is to be changed, as it is now, and returns its revision. Without a terminal,
// the revision must have been given.
func (a *app) confirmed(ctx context.Context, e examined, verb, question string) (idempotency.ChangeOption, error) {
	if e.revision < 0 {
		return nil, usageError{fmt.Errorf("--revision %d is not positive", e.revision)}
	}
	var r idempotency.Record
	err := a.one(ctx, verb, e.store, func(ctx context.Context, s *idempotency.Store) (err error) {
		r, _, err = s.Get(ctx, idempotency.Ref(e.ref))
		if errors.Is(err, idempotency.ErrUnreadable) && r.Ref != "" {
			err = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	now := fmt.Sprintf("request %s of store %s is %s, attempt %d by %s, revision %d", e.ref, e.store, nameOf(r.State), r.Attempt, or(r.Owner), r.Revision)
	switch {
	case e.revision != 0 && e.revision != r.Revision:
		return nil, fmt.Errorf("%s: it has changed since revision %d; nothing was changed", now, e.revision)
	case e.revision == 0 && (a.yes || !terminal(a.std.In)):
		return nil, usageError{fmt.Errorf("%s: to change it, add --revision %d and --yes", now, r.Revision)}
	}
	return idempotency.OnlyRevision(r.Revision), a.confirm(ctx, strings.ToUpper(now[:1])+now[1:]+". "+question)
}

func (a *app) requestResolve() *cobra.Command {
	var n resolution
	var which examined
	cmd := &cobra.Command{
		Use:   "resolve STORE REF (--done FILE | --failed TEXT | --not-done)",
		Short: "Record what a lost attempt has done, as its operator has found out",
		Long: `Record the outcome of a request of unknown outcome: one whose process died during the work.

--done FILE: it was done, with the content of FILE as its result: JSON for idempotency.Do, the bytes of
Response.Encode for idemhttp, those of Encode for idemgrpc; - is standard input. It is not empty. The result is stored
without a Codec: if the services have one, resolve such requests in a program with the same Options.
--failed TEXT: it failed for good; duplicates get this failure. The text is stored in plain text.
--not-done: nothing was done; the next duplicate does the work.

The outcome is kept as long as a request of unknown outcome is, from now on: for Options.RetainUnknown of the
services, which is no shorter than their Retain.

Only the attempt that the question names gets the outcome, or the one with --revision, as 'etcdkit requests get'
prints it: if another attempt has begun since, nothing is changed and the exit code is 1. With --yes, --revision
is required.`,
		Example: "etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --not-done\necho '{\"charge\":7}' | etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --done - --revision 4712 --yes",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, text, err := n.read(cmd, a.std.In)
			if err != nil {
				return err
			}
			which.store, which.ref = args[0], args[1]
			only, err := a.confirmed(cmd.Context(), which, "requests resolve", "Record that it "+text)
			if err != nil {
				return err
			}
			return a.one(cmd.Context(), "requests resolve", args[0], func(ctx context.Context, s *idempotency.Store) error {
				if err := s.Resolve(ctx, idempotency.Ref(args[1]), what, only); err != nil {
					return err
				}
				r, _, err := s.Get(ctx, idempotency.Ref(args[1]))
				if err != nil {
					return fmt.Errorf("the outcome is recorded; %w", err)
				}
				if err := a.printRecord(showRecord(r), nil, false); err != nil {
					return fmt.Errorf("the outcome is recorded; %w", err)
				}
				return nil
			})
		},
	}
	which.define(cmd)
	f := cmd.Flags()
	f.StringVar(&n.done, "done", "", "it was done, with the content of this file as its result; - is standard input")
	f.StringVar(&n.failed, "failed", "", "it failed for good, with this text")
	f.BoolVar(&n.notDone, "not-done", false, "nothing was done: the next duplicate does the work")
	return cmd
}

// read returns the resolution, and its text for a question.
func (n resolution) read(cmd *cobra.Command, stdin io.Reader) (idempotency.Resolution, string, error) {
	done, failed, given := cmd.Flags().Changed("done"), cmd.Flags().Changed("failed"), 0
	for _, flag := range []bool{done, failed, n.notDone} {
		if flag {
			given++
		}
	}
	switch {
	case given != 1:
		return idempotency.Resolution{}, "", usageError{errors.New("one of --done, --failed and --not-done is needed")}
	case failed && n.failed == "":
		return idempotency.Resolution{}, "", usageError{errors.New("--failed has no text")}
	case failed:
		return idempotency.HasFailed(n.failed), fmt.Sprintf("has failed for good: %q", n.failed), nil
	case n.notDone:
		return idempotency.NotDone(), "was not done, so that the next duplicate does the work", nil
	}
	read := func() ([]byte, error) {
		f, err := os.Open(n.done)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return io.ReadAll(io.LimitReader(f, mostResult+1))
	}
	if n.done == "-" {
		read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(stdin, mostResult+1)) }
	}
	result, err := read()
	if len(result) > mostResult {
		err = fmt.Errorf("%s has more than %d bytes", n.done, mostResult)
	}
	if err != nil {
		return idempotency.Resolution{}, "", usageError{fmt.Errorf("--done: %w", err)}
	}
	if len(result) == 0 { // as of a producer in a pipe that has failed
		return idempotency.Resolution{}, "", usageError{fmt.Errorf("--done %s: it is empty; duplicates would get an empty result", n.done)}
	}
	return idempotency.WasDone(result), fmt.Sprintf("was done, with a result of %d bytes", len(result)), nil
}

func (a *app) requestDelete() *cobra.Command {
	var which examined
	cmd := &cobra.Command{
		Use:   "delete STORE REF",
		Short: "Delete the record of a request: the next duplicate does the work again",
		Long: `Delete the record of a request that is not in progress. The next duplicate does the work again, also if it
was done. Processes that have the outcome in their cache may replay it for Options.CacheFor.

Only what the question names is deleted, or the record with --revision, as 'etcdkit requests get' prints it: if
it has changed since, nothing is deleted and the exit code is 1. With --yes, --revision is required.`,
		Example: "etcdkit requests delete -N payments orders c0535e4be2b79ffd/rE6fr...",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			which.store, which.ref = args[0], args[1]
			only, err := a.confirmed(cmd.Context(), which, "requests delete", "Delete the record, so that the next duplicate does the work again")
			if err != nil {
				return err
			}
			return a.one(cmd.Context(), "requests delete", args[0], func(ctx context.Context, s *idempotency.Store) error {
				if err := s.Delete(ctx, idempotency.Ref(args[1]), only); err != nil {
					return err
				}
				return a.printChange(struct {
					schema
					Ref     string `json:"ref"`
					Deleted bool   `json:"deleted"`
				}{schemaOf("request-deleted"), args[1], true}, func(t *table) { t.line("deleted " + args[1]) })
			})
		},
	}
	which.define(cmd)
	return cmd
}
