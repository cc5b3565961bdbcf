package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// shownQueue is the state of a queue as JSON.
type shownQueue struct {
	schema
	Kind     concurrency.QueueKind `json:"kind"`
	Name     string                `json:"name"`
	Key      string                `json:"key,omitempty"`
	Limit    int                   `json:"limit"`
	Stored   bool                  `json:"stored"`
	Used     int                   `json:"used"`
	Foreign  int                   `json:"foreign_keys"`
	Revision number                `json:"revision"`
	AsOf     time.Time             `json:"as_of"`
	Holders  []shownRequest        `json:"holders"`
	Waiters  []shownRequest        `json:"waiters"`
	*shownKeys
}

// shownKeys are the keys of a limiter as JSON.
type shownKeys struct {
	Default int64       `json:"default"`
	Total   int         `json:"keys_total"` // how many keys have a request or a limit
	Keys    []busyQueue `json:"keys"`       // the busiest
}

// shownRequest is a request as JSON.
type shownRequest struct {
	Token     number            `json:"token"`
	Owner     string            `json:"owner"`
	ID        string            `json:"id,omitempty"`
	Note      string            `json:"note,omitempty"`
	Weight    int               `json:"weight"`
	Lease     number            `json:"lease"`
	Requested time.Time         `json:"requested,omitzero"`
	MaxHold   seconds           `json:"max_hold_seconds,omitempty"`
	WaitsFor  concurrency.Level `json:"waits_for,omitempty"`
	Renewed   time.Time         `json:"renewed,omitzero"`
	ExpiresBy time.Time         `json:"expires_by,omitzero"`
}

func show(s subject, st concurrency.Status, asOf time.Time) shownQueue {
	return shownQueue{
		schemaOf("queue"), s.kind, s.name, s.key, st.Limit, st.Stored && !s.fixed(), st.Used, st.Foreign, number(st.Revision), asOf.UTC(),
		showRequests(st.Holders), showRequests(st.Waiters), nil,
	}
}

func showRequests(all []concurrency.Request) []shownRequest {
	out := make([]shownRequest, 0, len(all))
	for _, r := range all {
		out = append(out, shownRequest{
			number(r.Token), r.Owner, r.ID, r.Note, r.Weight, number(r.Lease), r.Requested.UTC(), seconds(r.MaxHold), r.WaitsFor,
			r.Renewed.UTC(), r.ExpiresBy.UTC(),
		})
	}
	return out
}

// showing is what `show` is asked for.
type showing struct {
	app   *app
	named subject
	watch bool
	keys  int
}

func (a *app) show() *cobra.Command {
	v := showing{app: a}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a queue: its limit, its holders, and its waiters in their order",
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
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if v.named, err = parseSubject(args[0]); err != nil {
				return err
			}
			if v.keys < 0 {
				return usageError{fmt.Errorf("--keys %d is negative", v.keys)}
			}
			if v.watch {
				return v.follow(cmd.Context())
			}
			return a.session(cmd.Context(), "show", v.once)
		},
	}
	cmd.Flags().BoolVarP(&v.watch, "watch", "w", false, "print the state again after each change")
	cmd.Flags().IntVar(&v.keys, "keys", 20, "keys of a limiter that are shown")
	return cmd
}

// once prints the state.
func (v *showing) once(ctx context.Context, sess *concurrency.Session) error {
	s, err := v.named.resolve(ctx, sess)
	if err != nil {
		return err
	}
	if s.kind == concurrency.KindRate {
		return v.app.showRate(ctx, sess, s)
	}
	q, err := queueOf(sess, s)
	if err != nil {
		return err
	}
	st, err := q.Status(ctx, concurrency.CheckLeases())
	if err != nil {
		return err
	}
	var of *fleet.Limiter
	if s.kind == concurrency.KindLimiter && s.key == "" {
		if of, err = v.app.limiter(ctx, sess, s.name); err != nil {
			return err
		}
	}
	if err := hasAny(s, st); err != nil && s.fixed() {
		fmt.Fprintf(v.app.std.Err, "%v; it is free, or the name is wrong\n", err)
	} else if err != nil && of == nil {
		return err
	}
	return v.print(s, st, of)
}

// hasAny returns an error if etcd has nothing of a queue. Of a mutex or election without requests it has nothing.
func hasAny(s subject, st concurrency.Status) error {
	if st.Stored && !s.fixed() || len(st.Holders)+len(st.Waiters)+st.Foreign > 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", s, errNothing)
}

// follow prints each state until ctx ends.
func (v *showing) follow(ctx context.Context) error {
	a := v.app
	return a.open(ctx, "show", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		s, err := v.named.resolve(ctx, sess)
		if err != nil {
			return err
		}
		if s.kind == concurrency.KindRate {
			return usageError{fmt.Errorf("%s: --watch is not for limits of a rate; 'etcdkit show %s' shows the present state", s, s)}
		}
		q, err := queueOf(sess, s)
		if err != nil {
			return err
		}
		shown := false
		return a.following(ctx, sess, func(ctx context.Context) error {
			for st, err := range q.Watch(ctx) {
				if err != nil {
					return err
				}
				if err := hasAny(s, st); err != nil && !shown && s.kind == concurrency.KindLimiter && s.key == "" {
					fmt.Fprintf(a.std.Err, "%s: no total is stored, which --watch follows; %s/KEY follows a key\n", s, s)
				} else if err != nil && !shown {
					fmt.Fprintf(a.std.Err, "%v; it is followed from its first request on\n", err)
				}
				shown = true
				if err := v.print(s, st, nil); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// limiter reads a limiter with its keys, or nil if etcd has none of that name.
func (a *app) limiter(ctx context.Context, sess *concurrency.Session, name string) (*fleet.Limiter, error) {
	state, err := a.queues(ctx, sess, engine.Of(sess).Space().Limiter(name).Range)
	if err != nil {
		return nil, err
	}
	return state.Limiters[name], nil
}

// print prints a queue, and of a limiter so many of its keys.
func (v *showing) print(s subject, st concurrency.Status, of *fleet.Limiter) error {
	shown := show(s, st, time.Now())
	if of != nil {
		all := busyKeys(s.name, of)
		shown.shownKeys = &shownKeys{of.Base.Limit.Limit, len(all), append([]busyQueue{}, all[:min(v.keys, len(all))]...)}
	}
	return v.app.print(shown, func(t *table) {
		tableOf(t, s, st, shown.AsOf)
		if of != nil {
			shown.tableOf(t)
		}
	})
}

// tableOf writes the default and the keys of a limiter.
func (k *shownKeys) tableOf(t *table) {
	t.line(fmt.Sprintf("default of a key %d, %s with a request or a limit", k.Default, count(k.Total, "key", "keys")))
	if len(k.Keys) == 0 {
		return
	}
	t.row("KIND/NAME", "USED", "LIMIT", "WAITING", "OLDEST WAIT", "OLDEST HOLD")
	now := time.Now()
	for _, q := range k.Keys {
		t.row(q.Name, q.Used, q.limit(), q.Waiting, ago(now, q.OldestWait), ago(now, q.OldestHold))
	}
	if more := k.Total - len(k.Keys); more > 0 {
		t.line(fmt.Sprintf("and %d more (--keys)", more))
	}
}

// tableOf writes the requests of a queue.
func tableOf(t *table, s subject, st concurrency.Status, asOf time.Time) {
	limit := strconv.Itoa(st.Limit)
	if !st.Stored {
		limit = noLimit(st)
	} else if st.Limit == 0 {
		limit = "0 (paused)"
	}
	if s.kind == concurrency.KindLimiter && s.key == "" && !st.Stored {
		t.line(fmt.Sprintf("%s: no total, revision %d, at %s UTC", s, st.Revision, asOf.Format(time.TimeOnly)))
	} else {
		t.line(fmt.Sprintf("%s: limit %s, used %d, %d waiting, revision %d, at %s UTC", s, limit, st.Used, len(st.Waiters), st.Revision, asOf.Format(time.TimeOnly)))
	}
	if st.Foreign > 0 {
		t.line(fmt.Sprintf("%s in its range: see docs/operations.md", count(st.Foreign, "foreign key", "foreign keys")))
	}
	if len(st.Holders)+len(st.Waiters) == 0 {
		return
	}
	t.row("", "TOKEN", "OWNER", "WEIGHT", "AGE", "RENEWED", "EXPIRES (UTC)", "ID", "NOTE")
	waits := 0
	for i, r := range append(append([]concurrency.Request{}, st.Holders...), st.Waiters...) {
		place := "holds"
		switch {
		case i < len(st.Holders):
		case r.WaitsFor == concurrency.LevelTotal: // it is admitted at its key
			place = "waits for the total"
		default:
			waits++
			place = "waits " + ordinal(waits)
		}
		expires := "-"
		if !r.ExpiresBy.IsZero() {
			expires = r.ExpiresBy.UTC().Format(time.TimeOnly)
		}
		t.row(place, r.Token, r.Owner, r.Weight, ago(asOf, r.Requested), ago(asOf, r.Renewed), expires, or(r.ID), or(r.Note))
	}
}

// showRate prints the state of a rate limiter.
func (a *app) showRate(ctx context.Context, sess *concurrency.Session, s subject) error {
	l, err := rateOf(sess, s)
	if err != nil {
		return err
	}
	st, err := l.Status(ctx)
	if err != nil {
		return err
	}
	type holder struct {
		Owner   string    `json:"owner"`
		Shares  int       `json:"shares"`
		Waiting int       `json:"waiting_shares"`
		Since   time.Time `json:"since,omitzero"`
	}
	holders := make([]holder, 0, len(st.Holders))
	for _, h := range st.Holders {
		holders = append(holders, holder{h.Owner, h.Shares, h.Waiting, h.Since.UTC()})
	}
	return a.print(struct {
		schema
		Name     string   `json:"name"`
		Rate     float64  `json:"per_second"`
		Burst    int      `json:"burst"`
		Stored   bool     `json:"stored"`
		Shares   int      `json:"shares"`
		Revision number   `json:"revision"`
		Holders  []holder `json:"holders"`
	}{schemaOf("rate"), s.name, st.Rate.PerSecond, st.Rate.Burst, st.Stored, st.Shares, number(st.Revision), holders}, func(t *table) {
		if !st.Stored {
			t.line(fmt.Sprintf("%s: no rate stored, revision %d", s, st.Revision))
			return
		}
		t.line(fmt.Sprintf("%s: %v per second, burst %d, in %s, revision %d", s, st.Rate.PerSecond, st.Rate.Burst, count(st.Shares, "share", "shares"), st.Revision))
		if len(holders) == 0 {
			return
		}
		t.row("OWNER", "SHARES", "WAITING", "AGE")
		for _, h := range holders {
			t.row(h.Owner, h.Shares, h.Waiting, ago(time.Now(), h.Since))
		}
	})
}

// ordinal returns 1st, 2nd, 3rd, 4th.
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
