package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
)

// stopper asks a holder to release its permit.
type stopper interface {
	RequestStop(ctx context.Context, token int64, reason string) error
}

func (a *app) evict() *cobra.Command {
	var reason string
	var force bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "evict NAME TOKEN",
		Short: "End one request of a queue: ask a holder to release its permit, or with --force end it at once",
		Long: `End the request with this token, as 'etcdkit show' prints it.

A waiter is removed from the queue. A holder is asked to stop, and evict waits until it has released its
permit: 'etcdkit run' ends its command then, and a program stops if it watches Permit.StopRequested. If
the holder does not, evict ends with the code 75: the holder stays asked, and may still release its permit.

With --force the permit is taken from a holder at once. Then the next request may be admitted while the
former holder still works: only a fencing token or a guard excludes its effects.`,
		Example: "etcdkit evict -N payments charge 4711 --reason 'stuck since 12:00'\netcdkit evict -N payments mutex/report 4711 --force --yes --reason 'host is gone'",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parseSubject(args[0])
			if err != nil {
				return err
			}
			token, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || token <= 0 {
				return usageError{fmt.Errorf("token %q is not a positive number", args[1])}
			}
			if wait < 0 {
				return usageError{fmt.Errorf("--wait %v is negative", wait)}
			}
			question := fmt.Sprintf("End the request with token %d of %s", token, args[0])
			if force {
				question += " by force, even if its work then overlaps with the next holder's"
			}
			if err := a.confirm(cmd.Context(), question); err != nil {
				return err
			}
			return a.open(cmd.Context(), "evict", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				ctx, cancel := context.WithTimeout(ctx, wait+a.etcd.timeout)
				defer cancel()
				s, err := named.resolve(ctx, sess)
				if err != nil {
					return err
				}
				q, err := queueOf(sess, s)
				if err != nil {
					return err
				}
				if err := end(ctx, q, s, token, reason, force, wait); err != nil {
					return err
				}
				return a.print(struct {
					schema
					Name  string `json:"name"`
					Token number `json:"token"`
					Ended bool   `json:"ended"`
				}{schemaOf("evicted"), s.String(), number(token), true}, func(t *table) { t.line(fmt.Sprintf("%s: the request with token %d has ended", s, token)) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "why, for the owner of the request and its log")
	f.BoolVar(&force, "force", false, "end the permit of a holder without its consent")
	f.DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the release of a holder that was asked")
	return cmd
}

// end ends a request.
func end(ctx context.Context, q queue, s subject, token int64, reason string, force bool, wait time.Duration) error {
	st, err := q.Status(ctx)
	if err != nil {
		return err
	}
	if force || !has(st.Holders, token) {
		return q.EvictToken(ctx, token, reason)
	}
	if err := q.(stopper).RequestStop(ctx, token, reason); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for st, err := range q.Watch(waiting) {
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			if st, err := q.Status(ctx); err != nil || !has(st.Holders, token) { // without etcd, it is not known
				return err
			}
			return &exitError{exitNotAcquired, fmt.Errorf("%s: the holder with token %d was asked to stop, and still holds after %v; --force ends the permit at once, and its work may then overlap with the next holder's", s, token, wait)}
		case err != nil:
			return err
		case !has(st.Holders, token):
			return nil
		}
	}
	return ctx.Err()
}

func has(all []concurrency.Request, token int64) bool {
	for _, r := range all {
		if r.Token == token {
			return true
		}
	}
	return false
}
