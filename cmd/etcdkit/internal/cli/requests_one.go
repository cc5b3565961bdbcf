package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// one runs fn with a store, bounded by --command-timeout.
func (a *app) one(ctx context.Context, verb, name string, opts *idempotency.Options, fn func(context.Context, *idempotency.Store) error) error {
	return a.store(ctx, verb, name, opts, func(ctx context.Context, s *idempotency.Store) error {
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
			return a.one(engine.Reader(cmd.Context()), "requests get", args[0], nil, func(ctx context.Context, s *idempotency.Store) error {
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
		t.row("token", int64(r.Token))
		t.row("owner", or(r.Owner))
		t.row("started", instant(r.Started))
		t.row("ended", instant(r.Ended))
		t.row("failure", or(r.Failure))
		t.row("resolved by", or(r.Resolved))
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
	retain       time.Duration
}

// mostResult bounds what is read of a result, in bytes: etcd takes no larger request.
const mostResult = 1 << 20

func (a *app) requestResolve() *cobra.Command {
	var n resolution
	cmd := &cobra.Command{
		Use:   "resolve STORE REF (--done FILE | --failed TEXT | --not-done)",
		Short: "Record what a lost attempt has done, as its operator has found out",
		Long: `Record the outcome of a request of unknown outcome: one whose process died during the work.

--done FILE: it was done, with the content of FILE as its result: JSON for idempotency.Do, the bytes of
Response.Encode for idemhttp, those of Encode for idemgrpc; - is standard input. It is not empty. The result is stored
without a Codec: if the services have one, resolve such requests in a program with the same Options.
--failed TEXT: it failed for good; duplicates get this failure. The text is stored in plain text.
--not-done: nothing was done; the next duplicate does the work.

The outcome is kept for --retain, which should be Options.Retain of the services.`,
		Example: "etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --not-done\necho '{\"charge\":7}' | etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --done - --yes",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, text, err := n.read(cmd, a.std.In)
			if err == nil {
				err = a.confirm(cmd.Context(), fmt.Sprintf("Record that request %s of store %s %s", args[1], args[0], text))
			}
			if err != nil {
				return err
			}
			return a.one(cmd.Context(), "requests resolve", args[0], &idempotency.Options{Retain: n.retain}, func(ctx context.Context, s *idempotency.Store) error {
				if err := s.Resolve(ctx, idempotency.Ref(args[1]), what); err != nil {
					return err
				}
				r, _, err := s.Get(ctx, idempotency.Ref(args[1]))
				if err != nil {
					return fmt.Errorf("the outcome is recorded; %w", err)
				}
				return a.printRecord(showRecord(r), nil, false)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.done, "done", "", "it was done, with the content of this file as its result; - is standard input")
	f.StringVar(&n.failed, "failed", "", "it failed for good, with this text")
	f.BoolVar(&n.notDone, "not-done", false, "nothing was done: the next duplicate does the work")
	f.DurationVar(&n.retain, "retain", 24*time.Hour, "how long the outcome is kept")
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
	return &cobra.Command{
		Use:   "delete STORE REF",
		Short: "Delete the record of a request: the next duplicate does the work again",
		Long: `Delete the record of a request that is not in progress. The next duplicate does the work again, also if it
was done. Processes that have the outcome in their cache may replay it for Options.CacheFor.`,
		Example: "etcdkit requests delete -N payments orders c0535e4be2b79ffd/rE6fr...",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), fmt.Sprintf("Delete request %s of store %s, so that the next duplicate does the work again", args[1], args[0])); err != nil {
				return err
			}
			return a.one(cmd.Context(), "requests delete", args[0], nil, func(ctx context.Context, s *idempotency.Store) error {
				if err := s.Delete(ctx, idempotency.Ref(args[1])); err != nil {
					return err
				}
				return a.print(struct {
					schema
					Ref     string `json:"ref"`
					Deleted bool   `json:"deleted"`
				}{schemaOf("request-deleted"), args[1], true}, func(t *table) { t.line("deleted " + args[1]) })
			})
		},
	}
}
