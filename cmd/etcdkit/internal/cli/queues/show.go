package queues

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// shownQueue is the state of a queue as JSON.
type shownQueue struct {
	output.Form
	Kind     concurrency.QueueKind `json:"kind"`
	Name     string                `json:"name"`
	Key      string                `json:"key,omitempty"`
	Limit    int                   `json:"limit"`
	Stored   bool                  `json:"stored"`
	Unread   string                `json:"unreadable,omitempty"` // why a limit that is stored cannot be read
	Used     int                   `json:"used"`
	Foreign  int                   `json:"foreign_keys"`
	Revision output.Number         `json:"revision"`
	AsOf     time.Time             `json:"as_of"`
	Holders  []shownRequest        `json:"holders"`
	Waiters  []shownRequest        `json:"waiters"`
	*author
	*shownKeys
}

// shownKeys are the keys of a limiter as JSON.
type shownKeys struct {
	Default int64        `json:"default"`
	Stored  bool         `json:"default_stored"`               // whether there is a default that can be read
	Unread  string       `json:"default_unreadable,omitempty"` // why a default that is stored cannot be read
	Set     *author      `json:"default_set,omitempty"`
	Total   int          `json:"keys_total"` // how many keys have a request or a limit
	Keys    []queue.Busy `json:"keys"`       // the busiest
}

// shownRequest is a request as JSON.
type shownRequest struct {
	Token     output.Number     `json:"token"`
	Owner     string            `json:"owner"`
	ID        string            `json:"id,omitempty"`
	Note      string            `json:"note,omitempty"`
	Weight    int               `json:"weight"`
	Lease     output.Number     `json:"lease"`
	Requested time.Time         `json:"requested,omitzero"`
	MaxHold   output.Seconds    `json:"max_hold_seconds,omitempty"`
	WaitsFor  concurrency.Level `json:"waits_for,omitempty"`
	Renewed   time.Time         `json:"renewed,omitzero"`
	ExpiresBy time.Time         `json:"expires_by,omitzero"`
}

// shownOf returns the state of a queue as JSON.
func shownOf(s queue.Subject, st concurrency.Status, asOf time.Time) shownQueue {
	return shownQueue{
		output.FormOf("queue"), s.Kind, s.Name, s.Key, st.Limit, st.Stored && !s.Fixed(), queue.Why(st.Unreadable), st.Used, st.Foreign,
		output.Number(st.Revision), asOf.UTC(),
		showRequests(st.Holders), showRequests(st.Waiters), nil, nil,
	}
}

func showRequests(all []concurrency.Request) []shownRequest {
	out := make([]shownRequest, 0, len(all))
	for _, r := range all {
		out = append(out, shownRequest{
			output.Number(r.Token), r.Owner, r.ID, r.Note, r.Weight, output.Number(r.Lease), r.Requested.UTC(),
			output.Seconds(r.MaxHold), r.WaitsFor, r.Renewed.UTC(), r.ExpiresBy.UTC(),
		})
	}
	return out
}

// showing is what `show` is asked for.
type showing struct {
	call  *verb.Call
	named queue.Subject
	watch bool
	keys  int
}

// Show returns the verb show.
func Show(c *verb.Call) *cobra.Command {
	v := showing{call: c}
	cmd := &cobra.Command{
		Use:        "show NAME",
		SuggestFor: []string{"status", "stat", "get", "describe", "queue"},
		Short:      "Show a queue: its limit, its holders, and its waiters in their order",
		Long: `Show the limit, the holders and the waiters of a queue, in the order in which they are served.

NAME is KIND/NAME as 'etcdkit ls' prints it, or the name alone if one kind has it. The key of a limiter
is limiter/NAME/KEY; limiter/NAME is its total, if it has one, and its busiest keys, --keys of them. A request that
waits for the total is admitted at its key, and uses the key's limit.

RENEWED is the time since the request's session renewed its lease. EXPIRES is when the permit is free at
the latest if the session does not renew again: a dead holder is one whose RENEWED is above a third of
its TTL. With --watch, the state is printed again after each change, until the command is interrupted;
with -o json as one line for each. Leases are not asked for then, so both are "-".
Standard error says when etcd does not answer.`,
		Example: "etcdkit show -N payments charge\netcdkit show -N payments limiter/api/tenant-7 -w -o json",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if v.named, err = queue.Parse(args[0]); err != nil {
				return err
			}
			if v.keys < 0 {
				return exit.Usagef("--keys %d is negative", v.keys)
			}
			if v.watch {
				return v.follow(cmd.Context())
			}
			return c.Session(cmd.Context(), "show", v.once)
		},
	}
	cmd.Flags().BoolVarP(&v.watch, "watch", "w", false, "print the state again after each change")
	cmd.Flags().IntVar(&v.keys, "keys", 20, "keys of a limiter that are shown")
	return cmd
}

// once prints the state.
func (v *showing) once(ctx context.Context, sess *concurrency.Session) error {
	s, err := v.named.Resolve(ctx, sess)
	if err != nil {
		return err
	}
	if s.Kind == concurrency.KindRate {
		return showRate(ctx, v.call, sess, s, false)
	}
	q, err := queue.Of(sess, s)
	if err != nil {
		return err
	}
	st, err := q.Status(ctx, concurrency.CheckLeases())
	if err != nil {
		return err
	}
	var of *fleet.Limiter
	if s.Kind == concurrency.KindLimiter && s.Key == "" {
		if of, err = limiter(ctx, v.call, sess, s.Name); err != nil {
			return err
		}
	}
	if err := hasAny(s, st); err != nil && s.Fixed() {
		fmt.Fprintf(v.call.Std.Err, "%v; it is free, or the name is wrong\n", err)
	} else if err != nil && of == nil {
		return err
	}
	return v.print(s, st, of, authorsOf(ctx, sess))
}

// hasAny returns an error if etcd has nothing of a queue. Of a mutex or election without requests it has nothing.
func hasAny(s queue.Subject, st concurrency.Status) error {
	if st.Stored && !s.Fixed() || st.Unreadable != nil || len(st.Holders)+len(st.Waiters)+st.Foreign > 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", s, queue.ErrNothing)
}

// follow prints each state until ctx ends.
func (v *showing) follow(ctx context.Context) error {
	c := v.call
	return c.Open(ctx, "show", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		s, err := v.named.Resolve(ctx, sess)
		if err != nil {
			return err
		}
		if s.Kind == concurrency.KindRate {
			return exit.Usagef("%s: --watch is not for limits of a rate; 'etcdkit show %s' shows the present state", s, s)
		}
		q, err := queue.Of(sess, s)
		if err != nil {
			return err
		}
		shown := false
		return c.Following(ctx, sess, func(ctx context.Context) error {
			for st, err := range q.Watch(ctx) {
				if err != nil {
					return err
				}
				if err := hasAny(s, st); err != nil && !shown && s.Kind == concurrency.KindLimiter && s.Key == "" {
					fmt.Fprintf(c.Std.Err, "%s: no total is stored, which --watch follows; %s/KEY follows a key\n", s, s)
				} else if err != nil && !shown {
					fmt.Fprintf(c.Std.Err, "%v; it is followed from its first request on\n", err)
				}
				shown = true
				if err := v.print(s, st, nil, nil); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// limiter reads a limiter with its keys, or nil if etcd has none of that name.
func limiter(ctx context.Context, c *verb.Call, sess *concurrency.Session, name string) (*fleet.Limiter, error) {
	state, err := c.Queues(ctx, sess, engine.Of(sess).Space().Limiter(name).Range)
	if err != nil {
		return nil, err
	}
	return state.Limiters[name], nil
}

// print prints a queue, and of a limiter so many of its keys. by finds the authors of limits; nil finds none.
func (v *showing) print(s queue.Subject, st concurrency.Status, of *fleet.Limiter, by func(queue.Subject, bool) *author) error {
	shown := shownOf(s, st, time.Now())
	if by != nil {
		shown.author = by(s, s.Kind == concurrency.KindLimiter && s.Key == "")
	}
	if of != nil {
		all := queue.BusyKeys(s.Name, of)
		shown.shownKeys = &shownKeys{of.Base.Limit.Limit, of.Base.Rev != 0 && !of.Base.Damaged, queue.Why(of.Base.Unreadable()), by(s, false), len(all), append([]queue.Busy{}, all[:min(v.keys, len(all))]...)}
	}
	return v.call.Print(shown, func(t *output.Table) {
		tableOf(t, s, st, shown.AsOf)
		if text := shown.author.text(shown.AsOf); text != "" {
			t.Line("limit " + text)
		}
		if of != nil {
			shown.tableOf(t)
		}
	})
}

// tableOf writes the default and the keys of a limiter.
func (k *shownKeys) tableOf(t *output.Table) {
	limit := "no default"
	switch {
	case k.Stored:
		limit = fmt.Sprintf("default of a key %d", k.Default)
	case k.Unread != "":
		limit = "default of a key not known (" + k.Unread + ")"
	}
	if text := k.Set.text(time.Now()); text != "" {
		limit += " (" + text + ")"
	}
	t.Line(fmt.Sprintf("%s, %s with a request or a limit", limit, output.Count(k.Total, "key", "keys")))
	if len(k.Keys) == 0 {
		return
	}
	t.Row("KIND/NAME", "USED", "LIMIT", "WAITING", "OLDEST WAIT", "OLDEST HOLD")
	now := time.Now()
	for _, q := range k.Keys {
		t.Row(q.Name, q.Used, q.LimitText(), q.Waiting, output.Ago(now, q.OldestWait), output.Ago(now, q.OldestHold))
	}
	if more := k.Total - len(k.Keys); more > 0 {
		t.Line(fmt.Sprintf("and %d more (--keys)", more))
	}
}

// tableOf writes the requests of a queue.
func tableOf(t *output.Table, s queue.Subject, st concurrency.Status, asOf time.Time) {
	limit := strconv.Itoa(st.Limit)
	if !st.Stored {
		limit = noLimit(st)
	} else if st.Limit == 0 {
		limit = "0 (paused)"
	}
	if s.Kind == concurrency.KindLimiter && s.Key == "" && !st.Stored && st.Unreadable == nil {
		t.Line(fmt.Sprintf("%s: no total, revision %d, at %s UTC", s, st.Revision, asOf.Format(time.TimeOnly)))
	} else {
		t.Line(fmt.Sprintf("%s: limit %s, used %d, %d waiting, revision %d, at %s UTC", s, limit, st.Used, len(st.Waiters), st.Revision,
			asOf.Format(time.TimeOnly)))
	}
	if st.Foreign > 0 {
		t.Line(fmt.Sprintf("%s in its range: see docs/operations.md", output.Count(st.Foreign, "foreign key", "foreign keys")))
	}
	if len(st.Holders)+len(st.Waiters) == 0 {
		return
	}
	t.Row("", "TOKEN", "OWNER", "WEIGHT", "AGE", "RENEWED", "EXPIRES (UTC)", "ID", "NOTE")
	waits := 0
	for i, r := range append(append([]concurrency.Request{}, st.Holders...), st.Waiters...) {
		place := "holds"
		switch {
		case i < len(st.Holders):
		case r.WaitsFor == concurrency.LevelTotal: // it is admitted at its key
			place = "waits for the total"
		default:
			waits++
			place = "waits " + output.Ordinal(waits)
		}
		expires := "-"
		if !r.ExpiresBy.IsZero() {
			expires = r.ExpiresBy.UTC().Format(time.TimeOnly)
		}
		t.Row(place, r.Token, r.Owner, r.Weight, output.Ago(asOf, r.Requested), output.Ago(asOf, r.Renewed), expires, output.OrDash(r.ID),
			output.OrDash(r.Note))
	}
}
