package requests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/record"
)

// bulk selects the requests of unknown outcome that are resolved together.
type bulk struct {
	state, scope, op string
	older            time.Duration
	scoped           bool
}

func (b *bulk) define(f *pflag.FlagSet) {
	f.StringVar(&b.state, "state", "", "without REF: resolve all requests in this state, which is unknown")
	f.StringVar(&b.scope, "scope", "", "without REF: only those of this scope, such as a tenant")
	f.StringVar(&b.op, "op", "", "without REF: only those of this operation")
	f.DurationVar(&b.older, "older-than", 0, "without REF: only those whose latest attempt began so long ago, by this host's clock")
}

// check refuses flags of one request where many are resolved, and those of many where one is.
func (b *bulk) check(f *pflag.FlagSet, many bool, which examined, found account) error {
	b.scoped = f.Changed("scope")
	switch {
	case !many && (f.Changed("state") || b.scoped || f.Changed("op") || f.Changed("older-than")):
		return exit.Usagef("--state, --scope, --op and --older-than select several requests: they exclude REF")
	case !many:
		return nil
	case b.state == "":
		return exit.Usagef("REF is missing; --state unknown resolves all requests of unknown outcome that --scope, --op and --older-than select")
	case b.state != nameOf(idempotency.Unknown):
		return exit.Usagef("--state %q: without REF only requests that are unknown are resolved", b.state)
	case found.result != nil:
		return exit.Usagef("each request has a result of its own: without REF one of --failed and --not-done is needed")
	case which.revision != 0:
		return exit.Usagef("--revision is of one record, and needs its REF")
	case b.scoped && b.scope == "": // the same; in a store of one tenant, all requests are without a scope
		return exit.Usagef("--scope is empty; without --scope those of all scopes are resolved, and those without one by their REF")
	case f.Changed("op") && b.op == "": // as of a variable that is not set
		return exit.Usagef("--op is empty, and no request is without an operation; without --op those of all are resolved")
	case b.older < 0:
		return exit.Usagef("--older-than %v is negative", b.older)
	}
	return nil
}

// selects reports whether a record is one of those.
func (b *bulk) selects(r idempotency.Record, now time.Time) bool {
	return (b.op == "" || r.Op == b.op) && (b.older == 0 || !r.Started.IsZero() && now.Sub(r.Started) >= b.older)
}

// all records what an operator has found out about many requests.
func (v *resolving) all(ctx context.Context) error {
	found, err := v.selected(ctx)
	if err != nil {
		return err
	}
	plan := planOf(found, v.found, v.which.force)
	if err := v.showPlan(found, plan); err != nil {
		return err
	}
	if err := v.call.Confirm(ctx, fmt.Sprintf("Record of %s that %s", output.Count(len(found), "request", "requests, each of them,"),
		v.found.text)); err != nil {
		return err
	}
	done := resolved{Form: output.FormOf("requests-resolved"), Selected: plan, Resolved: []idempotency.Ref{}, Refused: []refused{},
		Left: []idempotency.Ref{}}
	err = changing(ctx, v.call, "requests resolve", v.which.store, func(ctx context.Context, sess *concurrency.Session, s *idempotency.Store) error {
		err := v.each(ctx, s, found, &done)
		if len(done.Resolved) > 0 {
			verb.Record(ctx, v.call, sess, v.change(&done, err))
		}
		return err
	})
	return v.report(&done, err)
}

// change is the record of what was done to many requests, as one change: a record of each would push out what other operators
// have done.
func (v *resolving) change(done *resolved, stopped error) record.Change {
	var refs []string
	for _, ref := range done.Resolved {
		refs = append(refs, string(ref))
	}
	all := v.which.change("resolve", idempotency.Record{State: idempotency.Unknown}, v.found.outcome())
	all.Target = output.Count(len(refs), "target", "targets") + ": " + strings.Join(refs, ", ")
	if left := len(done.Refused) + len(done.Left); left > 0 {
		all.Failed = fmt.Sprintf("%d of %d were not resolved", left, len(refs)+left)
	}
	if stopped != nil {
		all.Failed += ": " + stopped.Error()
	}
	return all
}

// each resolves one request after the other. It stops at an error that is not about one request.
func (v *resolving) each(ctx context.Context, s *idempotency.Store, found []idempotency.Record, done *resolved) error {
	ctx, alive, cancel := v.call.Patience(ctx)
	defer cancel()
	p := v.call.Progress()
	defer p.End()
	for i, r := range found {
		p.Set("%d of %d requests resolved", i, len(found))
		err := v.which.spares(r) // also with --failed, since they were not looked at one by one
		if err == nil {
			err = s.Resolve(ctx, r.Ref, v.found.what, v.which.options(r)...)
		}
		switch {
		case err == nil:
			done.Resolved = append(done.Resolved, r.Ref)
		case stays(err):
			done.Refused = append(done.Refused, refused{r.Ref, err.Error()})
		default:
			for _, r := range found[i:] {
				done.Left = append(done.Left, r.Ref)
			}
			return verb.Because(ctx, err)
		}
		alive()
	}
	return nil
}

// selected returns the requests that are to be resolved.
func (v *resolving) selected(ctx context.Context) (found []idempotency.Record, err error) {
	filter, now := idempotency.Filter{State: idempotency.Unknown}, time.Now()
	if v.many.scoped {
		filter.Scope = &v.many.scope
	}
	err = eachRequest(ctx, v.call, "requests resolve", v.which.store, filter, func(r idempotency.Record) bool {
		if v.many.selects(r, now) {
			found = append(found, r)
		}
		return true
	})
	if err == nil && len(found) == 0 {
		err = errors.New("no request of unknown outcome is selected; nothing was changed")
	}
	return found, err
}

// stays reports whether an error is about one request, which stays as it is.
func stays(err error) bool {
	for _, one := range []error{idempotency.ErrAlive, idempotency.ErrConflict, idempotency.ErrInProgress, idempotency.ErrNotFound,
		idempotency.ErrUnreadable} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func shownRecords(records []idempotency.Record) (shown []shownRecord) {
	for _, r := range records {
		shown = append(shown, showRecord(r))
	}
	return shown
}
