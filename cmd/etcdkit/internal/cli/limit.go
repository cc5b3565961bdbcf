package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
)

// newLimit is what `limit` is asked to store.
type newLimit struct {
	number        string // "" reads
	burst         int    // 0 keeps the stored one
	create, clear bool
	total         bool
}

func (a *app) limit() *cobra.Command {
	var n newLimit
	cmd := &cobra.Command{
		Use:   "limit NAME [N]",
		Short: "Show the stored limit of a queue, or change it for all processes",
		Long: `Show the stored limit, or change it for all processes at once. A lowered limit ends no permit. 0 pauses:
nothing is admitted, and all waiters keep their places. A rate is above 0.

NAME is semaphore/NAME; limiter/NAME for the default of all keys, with --total for the total of them;
limiter/NAME/KEY for the limit of one key, which --clear removes; rate/NAME for a rate per second, whose
burst is kept without --burst. With -o json a rate is printed as 'etcdkit show' prints it. Programs without
AdoptLimit that start with another limit than the stored one return ErrLimitMismatch: see
docs/operations.md, changing a limit.`,
		Example: "etcdkit limit -N payments charge\netcdkit limit -N payments charge 20\netcdkit limit -N payments limiter/api/tenant-7 --clear\netcdkit limit -N payments rate/mail 50 --burst 10",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parseSubject(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if n.number = args[1]; n.number == "" { // as of a variable of a script that is not set
					return usageError{errors.New("N is empty")}
				}
			}
			if cmd.Flags().Changed("burst") && n.burst < 1 {
				return usageError{fmt.Errorf("--burst %d is below 1", n.burst)}
			}
			if zero, err := n.isZero(); err != nil {
				return err
			} else if zero && named.kind != concurrency.KindRate { // which cannot be 0
				if err := a.confirm(cmd.Context(), fmt.Sprintf("A limit of 0 pauses %s in all processes", args[0])); err != nil {
					return err
				}
			}
			if n.clear && named.key != "" && !a.yes {
				if err := a.confirmClear(cmd.Context(), named); err != nil {
					return err
				}
			}
			return a.session(cmd.Context(), "limit", func(ctx context.Context, sess *concurrency.Session) error {
				s, err := named.resolve(ctx, sess)
				if err != nil && n.create && errors.Is(err, errNoQueue) {
					err = usageError{fmt.Errorf("%s: with --create, name the kind too, as semaphore/%s", named.name, named.name)}
				}
				if err != nil {
					return err
				}
				return a.changeLimit(ctx, sess, s, n)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&n.burst, "burst", 0, "of a rate: how many at once after a quiet time (default the stored one, or 1)")
	f.BoolVar(&n.create, "create", false, "store a limit for a name that has none")
	f.BoolVar(&n.clear, "clear", false, "of limiter/NAME/KEY: remove the key's own limit")
	f.BoolVar(&n.total, "total", false, "of limiter/NAME: the total of all keys")
	return cmd
}

// confirmClear asks before a key gets a default limit of 0.
func (a *app) confirmClear(ctx context.Context, s subject) error {
	paused := false
	err := a.session(ctx, "limit", func(ctx context.Context, sess *concurrency.Session) error {
		q, err := semaphoreOf(sess, subject{kind: s.kind, name: s.name, key: unusedKey})
		if err != nil {
			return err
		}
		st, err := q.Status(ctx)
		paused = err == nil && st.Stored && st.Limit == 0
		return err
	})
	if err != nil || !paused {
		return err
	}
	return a.confirm(ctx, fmt.Sprintf("The default limit of limiter/%s is 0. Without its own limit %s is paused, in all processes", s.name, s))
}

// changeLimit changes the limit of a queue, if it is to be changed, and prints it.
func (a *app) changeLimit(ctx context.Context, sess *concurrency.Session, s subject, n newLimit) error {
	if err := n.check(s); err != nil {
		return err
	}
	var opts []concurrency.SetLimitOption
	if n.create {
		opts = append(opts, concurrency.CreateLimit())
	}
	show := func() error { return a.printLimit(ctx, sess, s, n.total) }
	switch {
	case s.kind == concurrency.KindRate:
		if n.number != "" {
			if err := changeRate(ctx, sess, s, n, opts); err != nil {
				return err
			}
		}
		show = func() error { return a.showRate(ctx, sess, s) }
	case n.clear:
		l, err := limiterOf(sess, s)
		if err != nil {
			return err
		}
		if err := l.ClearLimit(ctx, s.key); err != nil {
			return err
		}
	case n.number != "":
		limit, err := strconv.Atoi(n.number)
		if err != nil {
			return usageError{fmt.Errorf("limit %q is not a number", n.number)}
		}
		if err := setLimit(ctx, sess, s, n.total, limit, opts); err != nil {
			return err
		}
	}
	err := show()
	if err != nil && (n.clear || n.number != "") {
		err = fmt.Errorf("the limit was changed; %w", err)
	}
	return err
}

// isZero reports whether the number is 0, however it is written.
func (n newLimit) isZero() (bool, error) {
	if n.number == "" {
		return false, nil
	}
	number, err := strconv.ParseFloat(n.number, 64)
	if err != nil {
		return false, usageError{fmt.Errorf("limit %q is not a number", n.number)}
	}
	return number == 0, nil
}

// check returns an error if the flags do not fit the kind.
func (n newLimit) check(s subject) error {
	switch {
	case s.fixed():
		return usageError{fmt.Errorf("%s: the limit of a %s is 1 and cannot be changed", s, s.kind)}
	case n.clear && (s.key == "" || n.number != ""):
		return usageError{fmt.Errorf("%s: --clear is for limiter/NAME/KEY, without a number", s)}
	case n.create && n.number == "":
		return usageError{fmt.Errorf("%s: --create needs a number", s)}
	case n.burst > 0 && (s.kind != concurrency.KindRate || n.number == ""):
		return usageError{fmt.Errorf("%s: --burst is for rate/NAME, with a number", s)}
	case n.total && (s.kind != concurrency.KindLimiter || s.key != ""):
		return usageError{fmt.Errorf("%s: --total is for limiter/NAME", s)}
	}
	return nil
}

func setLimit(ctx context.Context, sess *concurrency.Session, s subject, total bool, limit int, opts []concurrency.SetLimitOption) error {
	if s.kind == concurrency.KindLimiter && s.key == "" && !total {
		l, err := limiterOf(sess, s)
		if err != nil {
			return err
		}
		return l.SetDefault(ctx, limit, opts...)
	}
	sem, err := semaphoreOf(sess, s)
	if err != nil {
		return err
	}
	return sem.SetLimit(ctx, limit, opts...)
}

// printLimit prints the limit that is stored.
func (a *app) printLimit(ctx context.Context, sess *concurrency.Session, s subject, total bool) error {
	of := s
	if s.kind == concurrency.KindLimiter && s.key == "" && !total {
		of.key = unusedKey // its limit is the default
	}
	q, err := semaphoreOf(sess, of)
	if err != nil {
		return err
	}
	st, err := q.Status(ctx)
	if err != nil {
		return err
	}
	what := s.String()
	if total {
		what += " (total)"
	}
	return a.print(struct {
		schema
		Name   string `json:"name"`
		Total  bool   `json:"total,omitempty"`
		Stored bool   `json:"stored"`
		Limit  int    `json:"limit"`
	}{schemaOf("limit"), s.String(), total, st.Stored, st.Limit}, func(t *table) {
		if st.Stored {
			t.row(what, st.Limit)
		} else {
			t.row(what, noLimit(st))
		}
	})
}

// noLimit is what is shown of a queue without a limit. One that is damaged, or of a later release, is among the keys
// that cannot be read.
func noLimit(st concurrency.Status) string {
	if st.Foreign > 0 {
		return "none stored that can be read"
	}
	return "none stored"
}

// unusedKey is a key that no program uses, by which the default limit is read.
const unusedKey = "etcdkit-limit-of-no-key"

func rateOf(sess *concurrency.Session, s subject) (*concurrency.RateLimiter, error) {
	return concurrency.NewRateLimiter(sess, s.name, concurrency.Rate{PerSecond: 1, Burst: 1}, &concurrency.RateLimiterOptions{AdoptRate: true})
}

func changeRate(ctx context.Context, sess *concurrency.Session, s subject, n newLimit, opts []concurrency.SetLimitOption) error {
	rate, err := strconv.ParseFloat(n.number, 64)
	if err != nil {
		return usageError{fmt.Errorf("rate %q is not a number", n.number)}
	}
	l, err := rateOf(sess, s)
	if err != nil {
		return err
	}
	st, err := l.Status(ctx)
	if err != nil {
		return err
	}
	burst := cmp.Or(n.burst, st.Rate.Burst, 1)
	return l.SetRate(ctx, concurrency.Rate{PerSecond: rate, Burst: burst}, opts...)
}
