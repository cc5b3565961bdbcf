package permits

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// eviction is what `evict` is asked for.
type eviction struct {
	named  queue.Subject
	token  int64
	reason string
	force  bool
	wait   time.Duration
	asked  bool // the process of the request was asked, and may end it later if it has not yet
}

// Evict returns the verb evict.
func Evict(c *verb.Call) *cobra.Command {
	var e eviction
	cmd := &cobra.Command{
		Use:   "evict NAME TOKEN",
		Short: "Ask one request of a queue to end, or with --force evict it at once",
		Long: `Ask for the end of the request with this token, as 'etcdkit show' prints it, and wait for it.

Its process is asked. A waiter withdraws its request. A holder finishes its work and releases its permit:
'etcdkit run' ends its command then, and a program stops if it watches Permit.StopRequested. No permit is
taken from a holder, also if the waiter is admitted meanwhile. No process has a permit of 'etcdkit hold':
'etcdkit release' ends that. If the request has not ended after --wait,
the code is 75: it stays asked, and may still end.

With --force the request is evicted at once, whatever its process does. If it holds a permit, the next
request may be admitted while the former holder still works: only a fencing token or a guard excludes its
effects.`,
		Example: "etcdkit evict -N payments charge 4711 --reason 'stuck since 12:00'\n" +
			"etcdkit evict -N payments mutex/report 4711 --force --yes --reason 'host is gone'",
		Args: verb.Arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.read(args[0], args[1]); err != nil {
				return err
			}
			if err := c.Confirm(cmd.Context(), e.question(args[0])); err != nil {
				return err
			}
			return c.Connected(engine.Leaseless(cmd.Context()), &concurrency.SessionOptions{Owner: verb.Owner("evict")},
				func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
					ctx, cancel := context.WithTimeout(ctx, e.wait+c.Etcd.Timeout)
					defer cancel()
					s, err := e.end(ctx, c, client, sess)
					if err == nil || e.asked {
						verb.Account(ctx, c, sess, e.change(s, err))
					}
					if err != nil {
						return err
					}
					return c.PrintChange(struct {
						output.Form
						Name  string        `json:"name"`
						Token output.Number `json:"token"`
						Ended bool          `json:"ended"`
					}{output.FormOf("evicted"), s.String(), output.Number(e.token), true}, func(t *output.Table) {
						t.Line(fmt.Sprintf("%s: the request with token %d has ended", s, e.token))
					})
				})
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.reason, "reason", "", "why, for the owner of the request, its log and the list of changes")
	f.BoolVar(&e.force, "force", false, "evict the request without asking its process, also if it holds a permit")
	f.DurationVar(&e.wait, "wait", 30*time.Second, "how long to wait for the end of a request that was asked")
	return cmd
}

// read takes the arguments, and checks them and the flags.
func (e *eviction) read(name, token string) (err error) {
	if e.named, err = queue.Parse(name); err != nil {
		return err
	}
	if e.token, err = strconv.ParseInt(token, 10, 64); err != nil || e.token <= 0 {
		return exit.Usagef("token %q is not a positive number", token)
	}
	if e.wait < 0 {
		return exit.Usagef("--wait %v is negative", e.wait)
	}
	return nil
}

// change returns the record of what was done, or asked for and not done yet.
func (e *eviction) change(s queue.Subject, err error) record.Change {
	change := record.Change{Verb: "request-stop", Name: s.String(), Target: strconv.FormatInt(e.token, 10), Reason: e.reason}
	if e.force {
		change.Verb = "evict"
	}
	if err != nil {
		change.Failed = err.Error()
	}
	return change
}

// question is what an operator confirms, with the name as it was given.
func (e *eviction) question(name string) string {
	if e.force {
		return fmt.Sprintf("Evict the request with token %d of %s by force, even if its work then overlaps with the next holder's",
			e.token, name)
	}
	return fmt.Sprintf("Ask the request with token %d of %s to end", e.token, name)
}

// end ends the request, and returns its queue.
func (e *eviction) end(ctx context.Context, c *verb.Call, client *clientv3.Client, sess *concurrency.Session) (s queue.Subject, err error) {
	if s, err = e.named.Resolve(ctx, sess); err != nil {
		return s, err
	}
	q, err := queue.Of(sess, s)
	if err != nil {
		return s, err
	}
	st, err := q.Status(ctx)
	if err != nil {
		return s, err
	}
	named := func(r concurrency.Request) bool { return r.Token == e.token }
	if e.force {
		return s, endLease(ctx, client, s, st.Holders, named, q.EvictToken(ctx, e.token, e.reason))
	}
	if i := slices.IndexFunc(st.Holders, named); i >= 0 && strings.HasPrefix(st.Holders[i].Owner, holdOwner) {
		return s, fmt.Errorf("%s: the permit with token %d is held by no process that could be asked; --force ends it at once; when "+
			"its work has ended, this releases it: %s", s, e.token, releasing(c, s.String(), st.Holders[i].ID))
	}
	return s, e.ask(ctx, q, s)
}

// ask has a request end with the consent of its process.
func (e *eviction) ask(ctx context.Context, q queue.Queue, s queue.Subject) error {
	if err := q.RequestStop(ctx, e.token, e.reason); err != nil {
		return err
	}
	e.asked = true
	waiting, cancel := context.WithTimeout(ctx, e.wait)
	defer cancel()
	for waiting.Err() == nil {
		if ended, err := endsSoon(waiting, q, e.token); ended || err != nil && waiting.Err() == nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return stillThere(ctx, q, s, e.token, e.wait)
}

// endsSoon follows a queue for a second, and reports whether a request has ended. The watch of an election
// shows no change of its candidates, but each one begins with all of them.
func endsSoon(ctx context.Context, q queue.Queue, token int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for st, err := range q.Watch(ctx) {
		switch {
		case err != nil && ctx.Err() != nil:
			return false, nil
		case err != nil:
			return false, err
		case !has(st.Holders, token) && !has(st.Waiters, token):
			return true, nil
		}
	}
	return false, nil
}

// stillThere returns what a request does that was asked to end and has not, or nil if it has.
func stillThere(ctx context.Context, q queue.Queue, s queue.Subject, token int64, wait time.Duration) error {
	st, err := q.Status(ctx)
	switch {
	case err != nil: // without etcd, it is not known
		return err
	case has(st.Holders, token):
		return exit.Errorf(exit.NotAcquired,
			"%s: the holder with token %d was asked to stop, and still holds after %v; --force ends the permit at once, and its work may "+
				"then overlap with the next holder's", s, token, wait)
	case has(st.Waiters, token):
		return exit.Errorf(exit.NotAcquired,
			"%s: the waiter with token %d was asked to withdraw, and still waits after %v: its process may be gone or stopped, and then "+
				"its lease ends the request; --force evicts it at once, also if it holds a permit by then", s, token, wait)
	}
	return nil
}

func has(all []concurrency.Request, token int64) bool {
	return slices.ContainsFunc(all, func(r concurrency.Request) bool { return r.Token == token })
}
