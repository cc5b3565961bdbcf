package requests

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// resolving is one execution of 'requests resolve'.
type resolving struct {
	call  *verb.Call
	flags resolution
	which examined
	many  bulk
	found account
}

const (
	resolveHelp = `Record the outcome of a request of unknown outcome, so that duplicates get it. 'etcdkit requests get' shows in its
row "via" what replays the outcome, and which result it takes:

http, of idemhttp: --status 201, --header 'Name: value' as often as needed, --body FILE. A failure is a response with
a status of 400 or more.
http/grpc, http/grpc-web, http/connect and the like, of a call of RPC behind idemhttp: --message FILE or --code and --text
as for grpc; with +json, as http/connect+json, FILE has JSON. A response by --status is taken if it is one of that
protocol.
grpc, of idemgrpc: --message FILE with --message-type, or without it if FILE is a google.protobuf.Any, both in
protobuf's binary form, as protoc writes it with its flag encode; or --code and --text for the status of a failure. The row
"returns" has the type of the message, if it is known; another one is refused.
do, of idempotency.Do: --done FILE, with JSON; a member that the result's type does not have is an error for duplicates.
None: a program has called Begin itself, and it alone knows the form: --done FILE, as it expects it. Nothing compares
FILE with that form.

--failed TEXT: it failed for good; duplicates get that failure, of HTTP the status 409. The text is stored in plain text.
--not-done: nothing was done; the next duplicate does the work. That needs --force while the process of the lost
attempt lives, since it may still be working.

FILE may be -, standard input. A result is stored without a Codec: if the services have one, resolve such
requests in a program with the same Options. A result that duplicates could not get is refused.

An outcome that an operator has recorded is corrected in the same way, from done to failed, from failed to done, or to
another result or text of the same kind. After --not-done it is corrected only until the next attempt begins; nothing is
corrected to --not-done. The record shows both. For up to
Options.CacheFor of the services (10s by default) and a third of their session's TTL, duplicates may get either.

The outcome is kept as long as a request of unknown outcome is, from now on: for Options.RetainUnknown of the
services, which is no shorter than their Retain; a correction is kept as long as what it corrects.

Only the attempt that the question names gets the outcome, or the one with --revision, as 'etcdkit requests get'
prints it: if another attempt has begun since, nothing is changed and the exit code is 1. With --yes, --revision
is required.

Without REF and with --state unknown, all requests of unknown outcome are resolved that --scope, --op and --older-than
select, with --not-done or --failed. They are listed before the question, and counted by their policy with what that
changes for duplicates: with take-over, --failed is final for requests that the next duplicate would repeat. A request
that has changed by then, or whose process lives, is left as it is, unless --not-done has --force; then the exit code is
1. If etcd refuses or does not answer, what was resolved by then is printed, and the same command continues.`

	resolveExamples = `etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --not-done
etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --status 201 --header 'Content-Type: application/json' --body receipt.json
etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --message-type shop.v1.Receipt --message receipt.bin
echo '{"charge":7}' | etcdkit requests resolve -N payments orders c0535e4be2b79ffd/rE6fr... --done - --revision 4712 --yes
etcdkit requests resolve -N payments orders --state unknown --scope tenant-7 --older-than 1h --failed 'never charged: bad input'`
)

func requestResolve(c *verb.Call) *cobra.Command {
	v := &resolving{call: c}
	cmd := &cobra.Command{
		Use:     "resolve STORE REF",
		Short:   "Record what a lost attempt has done, as its operator has found out",
		Long:    resolveHelp,
		Example: resolveExamples,
		Args:    verb.Arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if v.found, err = v.flags.read(cmd.Context(), cmd.Flags(), c.Std.In); err != nil {
				return err
			}
			if err := v.many.check(cmd.Flags(), len(args) == 1, v.which, v.found); err != nil {
				return err
			}
			v.which.store = args[0]
			if len(args) == 1 {
				return v.all(cmd.Context())
			}
			v.which.ref = args[1]
			return v.one(cmd.Context())
		},
	}
	v.which.define(cmd, "with --not-done: also while the process of the lost attempt lives")
	v.flags.define(cmd.Flags())
	v.many.define(cmd.Flags())
	return cmd
}

// one records what an operator has found out about one request.
func (v *resolving) one(ctx context.Context) error {
	c := v.call
	before, err := confirmed(ctx, c, &v.which, "requests resolve", func(r idempotency.Record) (string, error) {
		if err := v.found.fits(&v.which, r); err != nil {
			return "", err
		}
		question := "Record that it " + v.found.text
		if r.Resolved != "" {
			question += fmt.Sprintf(", in place of what %s has recorded at %s", r.Resolved, output.Instant(r.Ended))
		}
		return question, nil
	})
	if err != nil {
		return err
	}
	return changeOne(ctx, c, "requests resolve", v.which.store, func(ctx context.Context, sess *concurrency.Session, s *idempotency.Store) error {
		if err := s.Resolve(ctx, before.Ref, v.found.what, v.which.options(before)...); err != nil {
			return err
		}
		verb.Record(ctx, c, sess, v.which.change("resolve", before, v.found.outcome()))
		if before.State == idempotency.Done || before.State == idempotency.Failed {
			fmt.Fprintln(c.Std.Err, corrected)
		}
		r, _, err := s.Get(ctx, before.Ref)
		if err == nil {
			err = printRecord(c, showRecord(r), nil, false)
		}
		if err != nil {
			return fmt.Errorf("the outcome is recorded; %w", err)
		}
		return nil
	})
}

// corrected says for how long there are two outcomes.
const corrected = "The outcome is corrected. For up to Options.CacheFor of the services (10s by default) and a third of their " +
	"session's TTL, duplicates may get the earlier one."
