package queues

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// newLimit is what `limit` is asked to store.
type newLimit struct {
	number        string // "" reads
	burst         int    // 0 keeps the stored one
	create, clear bool
	total         bool
	reason        string
}

// Limit returns the verb limit.
func Limit(c *verb.Call) *cobra.Command {
	var n newLimit
	cmd := &cobra.Command{
		Use:        "limit NAME [N]",
		SuggestFor: []string{"set", "scale"},
		Short:      "Show a stored limit or rate, or change it for all processes",
		Long: `Show the stored limit, or change it for all processes at once. A lowered limit ends no permit. 0 pauses:
nothing is admitted, and all waiters keep their places. A rate is above 0.

NAME is semaphore/NAME; limiter/NAME for the default of all keys, with --total for the total of them;
limiter/NAME/KEY for the limit of one key, which --clear removes; rate/NAME for a rate per second, whose
burst is kept without --burst. Of a new limiter whose programs have a Total, store the total first, then the
default, each with --create: a default that is stored alone is for programs without a Total. With -o json a
rate is printed as 'etcdkit show' prints it. Programs without AdoptLimit that start with another limit than the
stored one return ErrLimitMismatch: see docs/operations.md, changing a limit. With --reason, the console lists the change.`,
		Example: "etcdkit limit -N payments charge\n" +
			"etcdkit limit -N payments charge 20 --reason 'the provider has raised our quota'\n" +
			"etcdkit limit -N payments limiter/api/tenant-7 --clear\n" +
			"etcdkit limit -N payments rate/mail 50 --burst 10",
		Args: verb.Arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := n.read(cmd.Flags(), args)
			if err != nil {
				return err
			}
			if err := n.confirm(cmd.Context(), c, named, args[0]); err != nil {
				return err
			}
			return c.Session(cmd.Context(), "limit", func(ctx context.Context, sess *concurrency.Session) error {
				s, err := named.Resolve(ctx, sess)
				if err != nil && n.create && errors.Is(err, queue.ErrNoQueue) {
					err = exit.Usagef("%s: with --create, name the kind too, as semaphore/%s", named.Name, named.Name)
				}
				if err != nil {
					return err
				}
				return changeLimit(ctx, c, sess, s, n)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&n.burst, "burst", 0, "of a rate: how many at once after a quiet time (default the stored one, or 1)")
	f.BoolVar(&n.create, "create", false, "store a limit for a name that has none")
	f.BoolVar(&n.clear, "clear", false, "of limiter/NAME/KEY: remove the key's own limit")
	f.BoolVar(&n.total, "total", false, "of limiter/NAME: the total of all keys")
	f.StringVar(&n.reason, "reason", "", "why, for the list of changes")
	return cmd
}

// read takes the arguments, and checks them and the flags.
func (n *newLimit) read(f *pflag.FlagSet, args []string) (named queue.Subject, err error) {
	if named, err = queue.Parse(args[0]); err != nil {
		return named, err
	}
	if len(args) == 2 {
		if n.number = args[1]; n.number == "" { // as of a variable of a script that is not set
			return named, exit.Usagef("N is empty")
		}
	}
	if f.Changed("burst") && n.burst < 1 {
		return named, exit.Usagef("--burst %d is below 1", n.burst)
	}
	return named, nil
}

// confirm asks before a limit of 0, which pauses. name is that of the argument.
func (n *newLimit) confirm(ctx context.Context, c *verb.Call, named queue.Subject, name string) error {
	zero, err := n.isZero()
	if err == nil && zero && named.Kind != concurrency.KindRate { // which cannot be 0
		err = c.Confirm(ctx, fmt.Sprintf("A limit of 0 pauses %s in all processes", name))
	}
	if err == nil && n.clear && named.Key != "" && !c.Yes {
		err = confirmClear(ctx, c, named)
	}
	return err
}

// confirmClear asks before a key gets a default limit of 0.
func confirmClear(ctx context.Context, c *verb.Call, s queue.Subject) error {
	var st concurrency.Status
	err := c.Session(ctx, "limit", func(ctx context.Context, sess *concurrency.Session) error {
		q, err := queue.SemaphoreOf(sess, queue.Subject{Kind: s.Kind, Name: s.Name, Key: unusedKey})
		if err != nil {
			return err
		}
		st, err = q.Status(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case st.Unreadable != nil:
		return c.Confirm(ctx, fmt.Sprintf("The default limit of limiter/%s cannot be read: %v. Without its own limit, calls of %s fail in all processes of this release", s.Name, st.Unreadable, s))
	case !st.Stored || st.Limit != 0:
		return nil
	}
	return c.Confirm(ctx, fmt.Sprintf("The default limit of limiter/%s is 0. Without its own limit %s is paused, in all processes", s.Name, s))
}

// changeLimit changes the limit of a queue, if it is to be changed, and prints it.
func changeLimit(ctx context.Context, c *verb.Call, sess *concurrency.Session, s queue.Subject, n newLimit) error {
	if err := n.check(s); err != nil {
		return err
	}
	var opts []concurrency.SetLimitOption
	if n.create {
		opts = append(opts, concurrency.CreateLimit())
	}
	show := func() error { return n.print(ctx, c, sess, s) }
	replaced := ""
	ctx = limit.Noting(ctx, func(was record.Limit) { replaced = before(s, was) })
	switch {
	case s.Kind == concurrency.KindRate:
		if n.number != "" {
			if err := changeRate(ctx, sess, s, n, opts); err != nil {
				return err
			}
		}
		show = func() error { return showRate(ctx, c, sess, s, n.number != "") }
	case n.clear:
		l, err := queue.LimiterOf(sess, s)
		if err != nil {
			return err
		}
		if err := l.ClearLimit(ctx, s.Key); err != nil {
			return err
		}
	case n.number != "":
		number, err := strconv.Atoi(n.number)
		if err != nil {
			return exit.Usagef("limit %q is not a number", n.number)
		}
		if err := setLimit(ctx, sess, s, n.total, number, opts); err != nil {
			return err
		}
	}
	n.account(ctx, c, sess, s, replaced)
	err := show()
	if err != nil && (n.clear || n.number != "") {
		err = fmt.Errorf("the limit was changed; %w", err)
	}
	return err
}

// before returns a limit that was replaced, for the list of changes.
func before(s queue.Subject, was record.Limit) string {
	if s.Kind == concurrency.KindRate {
		return fmt.Sprintf("%v per second, burst %d", was.Rate.PerSecond, was.Rate.Burst)
	}
	return strconv.FormatInt(was.Limit, 10)
}

// account records a change that has a reason.
func (n newLimit) account(ctx context.Context, c *verb.Call, sess *concurrency.Session, s queue.Subject, before string) {
	change := record.Change{Verb: "set-limit", Name: s.String(), Before: before, After: n.number, Reason: n.reason}
	switch {
	case n.clear:
		change.After = cleared
	case n.total:
		change.Target = "total"
	case s.Kind == concurrency.KindRate:
		change.After += " per second"
		if n.burst > 0 {
			change.After += fmt.Sprintf(", burst %d", n.burst)
		}
	}
	verb.Account(ctx, c, sess, change)
}

// shown returns the queue that has the limit.
func (n newLimit) shown(s queue.Subject) queue.Subject {
	if s.Kind == concurrency.KindLimiter && s.Key == "" && !n.total {
		s.Key = unusedKey // its limit is the default
	}
	return s
}

// isZero reports whether the number is 0, however it is written.
func (n newLimit) isZero() (bool, error) {
	if n.number == "" {
		return false, nil
	}
	number, err := strconv.ParseFloat(n.number, 64)
	if err != nil {
		return false, exit.Usagef("limit %q is not a number", n.number)
	}
	return number == 0, nil
}

// check returns an error if the flags do not fit the kind.
func (n newLimit) check(s queue.Subject) error {
	switch {
	case s.Fixed():
		return exit.Usagef("%s: the limit of a %s is 1 and cannot be changed", s, s.Kind)
	case n.clear && (s.Key == "" || n.number != ""):
		return exit.Usagef("%s: --clear is for limiter/NAME/KEY, without a number", s)
	case n.create && n.number == "":
		return exit.Usagef("%s: --create needs a number", s)
	case n.burst > 0 && (s.Kind != concurrency.KindRate || n.number == ""):
		return exit.Usagef("%s: --burst is for rate/NAME, with a number", s)
	case n.reason != "" && n.number == "" && !n.clear:
		return exit.Usagef("%s: --reason is for a change", s)
	case n.total && (s.Kind != concurrency.KindLimiter || s.Key != ""):
		return exit.Usagef("%s: --total is for limiter/NAME", s)
	}
	return nil
}

func setLimit(
	ctx context.Context, sess *concurrency.Session, s queue.Subject, total bool, limit int, opts []concurrency.SetLimitOption,
) error {
	if s.Kind == concurrency.KindLimiter && s.Key == "" && !total {
		return setDefault(ctx, sess, s, limit, opts)
	}
	sem, err := queue.SemaphoreOf(sess, s)
	if err != nil {
		return err
	}
	return sem.SetLimit(ctx, limit, opts...)
}

// setDefault sets the default limit of a limiter. Programs with a total refuse a default that was stored for a limiter
// without one, and the reverse: a new default is one of a limiter with a total only if that is stored already.
func setDefault(ctx context.Context, sess *concurrency.Session, s queue.Subject, limit int, opts []concurrency.SetLimitOption) error {
	l, err := queue.LimiterOf(sess, s)
	if err != nil {
		return err
	}
	total, err := l.Total().Status(ctx)
	if err == nil {
		err = queue.Unreadable(total.Unreadable) // a default for a limiter without a total would be another one
	}
	if err != nil {
		return err
	}
	if !total.Stored {
		if l, err = concurrency.NewKeyedLimiter(sess, s.Name, 0, &concurrency.KeyedLimiterOptions{AdoptLimit: true}); err != nil {
			return err
		}
	}
	return l.SetDefault(ctx, limit, opts...)
}

// print prints the limit that is stored.
func (n newLimit) print(ctx context.Context, c *verb.Call, sess *concurrency.Session, s queue.Subject) error {
	q, err := queue.SemaphoreOf(sess, n.shown(s))
	if err != nil {
		return err
	}
	st, err := q.Status(ctx)
	if err != nil {
		return err
	}
	what := s.String()
	if n.total {
		what += " (total)"
	}
	var by *author
	if n.number == "" && !n.clear { // not of what was set just now
		by = authorsOf(ctx, sess)(s, n.total)
	}
	return c.Print(struct {
		output.Form
		Name   string `json:"name"`
		Total  bool   `json:"total,omitempty"`
		Stored bool   `json:"stored"`
		Unread string `json:"unreadable,omitempty"` // why a limit that is stored cannot be read
		Limit  int    `json:"limit"`
		*author
	}{output.FormOf("limit"), s.String(), n.total, st.Stored, queue.Why(st.Unreadable), st.Limit, by}, func(t *output.Table) {
		limit := strconv.Itoa(st.Limit)
		if !st.Stored {
			limit = noLimit(st)
		}
		if text := by.text(time.Now()); text != "" {
			t.Row(what, limit, text)
		} else {
			t.Row(what, limit)
		}
	})
}

// noLimit is what is shown of a queue without a limit that can be read.
func noLimit(st concurrency.Status) string {
	if st.Unreadable != nil {
		return "not known (" + st.Unreadable.Error() + ")"
	}
	return "none stored"
}

// unusedKey is a key that no program uses, by which the default limit is read.
const unusedKey = "etcdkit-limit-of-no-key"
