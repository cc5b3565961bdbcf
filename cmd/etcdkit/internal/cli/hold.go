package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/observe"
)

// How owners begin.
const (
	holdOwner = "etcdkit hold " // of a session that no process renews
	runOwner  = "etcdkit run "  // of one whose permit is released when a command has ended
)

func (a *app) hold() *cobra.Command {
	var ask asking
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "hold NAME --id ID --for DURATION",
		Short: "Acquire a permit that outlives the command, until 'etcdkit release' or the duration has passed",
		Long: `Acquire a permit for the steps of a pipeline: it stays when the command has ended. 'etcdkit release NAME
--id ID' releases it, on any machine.

No process renews such a permit. It ends --for after its grant at the latest, whether the work has ended or
not; a new leader of etcd extends it by up to that time, and etcd's shortest lease, of one and a half times its
election timeout, may be longer. Nothing stops the work at its end, and no step
learns of it: where that matters, use 'etcdkit run'. The ID is how the permit is found again; a second hold with
the same ID exits with 75. Of two attempts of one pipeline, each has an ID of its own, or passes its token to
release.

An interrupted hold leaves no request. One that is killed while it waits leaves its request, which may be granted
later and then lasts up to --for: 'etcdkit release' with its ID removes it. Its session stays for --for.

The token and the time at which the permit ends are printed. If they cannot be, the permit is released. A standard
output that is closed (>&-) is /dev/null to this program, which takes them.`,
		Example: "etcdkit hold -N deploy production --id deploy-42 --for 30m\netcdkit hold -N deploy staging --limit 3 --id build-7 --for 10m --wait 5m -o json",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := ask.check(cmd.Flags())
			switch {
			case err != nil:
				return err
			case kind == concurrency.KindElection:
				return usageError{errors.New("--leader: a leader is a process; 'etcdkit run --leader' is one as long as its command runs")}
			case ask.id == "":
				return usageError{errors.New("--id is missing: 'etcdkit release' finds the permit by it")}
			case lasts < 5*time.Second || lasts > 24*time.Hour || lasts%time.Second != 0:
				return usageError{fmt.Errorf("--for %v is not a number of whole seconds from 5s to 24h", lasts)}
			}
			if err := checkName(args[0]); err != nil {
				return err
			}
			return a.keep(cmd.Context(), ask, kind, args[0], lasts)
		},
	}
	ask.define(cmd.Flags())
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long the permit lasts at most, from 5s to 24h (required)")
	return cmd
}

// heldPermit is what `hold` prints as JSON.
type heldPermit struct {
	schema
	Name  string    `json:"name"`
	ID    string    `json:"id"`
	Token number    `json:"token"`
	Lease number    `json:"lease"`
	Until time.Time `json:"until"`
}

// keep acquires a permit on a lease of its own, and leaves both in etcd.
func (a *app) keep(ctx context.Context, ask asking, kind concurrency.QueueKind, name string, lasts time.Duration) error {
	a.surviveReader()
	reports := &waitReports{app: a, kind: kind}
	opts := &concurrency.SessionOptions{TTL: lasts, Owner: owner("hold"), Hooks: []observe.Hooks{reports.hooks()}}
	return a.connected(ctx, opts, func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
		reports.sess.Store(sess)
		var lease clientv3.LeaseID
		var ends time.Time
		p, err := a.acquire(ctx, sess, ask, kind, name)
		if err == nil {
			lease, ends, err = a.renew(ctx, client, sess) // it has aged while the request waited
		}
		if err == nil {
			err = p.Err()
		}
		if err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if p != nil {
				_ = p.Release(closing) // Close waits for that
			}
			if sess.Close(closing) != nil { // its lease is not revoked, and would last as long as the permit
				fmt.Fprintf(a.std.Err, "etcdkit hold: etcd has not confirmed that the request has ended: it may hold a permit now or later, for %v. This removes it: %s\n", lasts, a.releasing(string(kind)+"/"+name, ask.id))
			}
			return err
		}
		// Without its connection the session can neither renew the lease nor revoke it. To close the client alone ends
		// the session first, whose request to revoke the lease may still be sent then.
		_ = client.ActiveConnection().Close()
		err = p.Err() // if it was lost until then, its lease may be revoked already
		_ = client.Close()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = sess.Close(ended)
		if err == nil {
			err = a.print(heldPermit{schemaOf("hold"), fmt.Sprintf("%s/%s", kind, name), ask.id, number(p.Token()), number(lease), ends.UTC().Truncate(time.Second)}, func(t *table) {
				t.line(fmt.Sprintf("%s/%s: token %d, held as %q until %s UTC", kind, name, p.Token(), ask.id, ends.UTC().Format(time.DateTime)))
			})
			if err == nil {
				return nil
			}
			err = fmt.Errorf("the permit was granted, but its token cannot be printed: %w", err)
		}
		// Its caller takes that for a permit that it does not have.
		if failed := a.revoke(ctx, lease); failed != nil {
			return fmt.Errorf("%w; it is held as %q until 'etcdkit release' or %s UTC, since its lease cannot be revoked: %w", err, ask.id, ends.UTC().Format(time.DateTime), failed)
		}
		return fmt.Errorf("%w; it is released", err)
	})
}

// renew renews the lease of a session once, and returns when that ends at the earliest: it counts from the request,
// since the answer may be late.
func (a *app) renew(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) (lease clientv3.LeaseID, ends time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.etcd.timeout)
	defer cancel()
	asked := time.Now()
	renewed, err := client.KeepAliveOnce(ctx, sess.Lease())
	if err != nil {
		return 0, ends, fmt.Errorf("renew the lease of the permit: %w", err)
	}
	return renewed.ID, asked.Add(time.Duration(renewed.TTL) * time.Second), nil
}

// revoke ends a lease, if it still exists, by a connection of its own.
func (a *app) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	return a.withClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Revoke(ctx, lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		return nil
	})
}

func (a *app) release() *cobra.Command {
	var which released
	cmd := &cobra.Command{
		Use:   "release NAME --id ID",
		Short: "Release the permit with an ID, on behalf of its holder",
		Long: `Release the permit with this ID: that of 'etcdkit hold', or of a program that has acquired it with an ID.
The work must have ended. The holder's context ends, if it still runs. A request that waits is removed. That of
'etcdkit run' is not released: its command may still work, and 'etcdkit evict' asks it to end.

If no live request has the ID, the command exits with 1: it was released before, or its time has passed,
and the work may have overlapped with another holder's. A later hold may have the same ID by then: with --token,
as hold has printed it, the permit of that is not released, and the code is 1 too.`,
		Example: "etcdkit release -N deploy production --id deploy-42\netcdkit release -N deploy production --id deploy-42 --token 4711",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parseSubject(args[0])
			switch {
			case err != nil:
			case which.id == "":
				err = usageError{errors.New("--id is missing")}
			case which.token < 0 || which.token == 0 && cmd.Flags().Changed("token"):
				err = usageError{fmt.Errorf("--token %d is not positive", which.token)}
			}
			if err != nil {
				return err
			}
			return a.connected(engine.Leaseless(cmd.Context()), &concurrency.SessionOptions{Owner: owner("release")}, func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
				ctx, cancel := context.WithTimeout(ctx, a.etcd.timeout)
				defer cancel()
				s, err := named.resolve(ctx, sess)
				if err != nil {
					return err
				}
				return a.releaseID(ctx, client, sess, s, which)
			})
		},
	}
	cmd.Flags().StringVar(&which.id, "id", "", "ID of the permit (required)")
	cmd.Flags().Int64Var(&which.token, "token", 0, "token of the permit: one with the same ID and another token is not released")
	return cmd
}

// endLease revokes the lease of a permit of 'etcdkit hold', which has ended or, as err says, could not end for want of
// space: no process has that lease or needs a notice. The process of a waiter may live, and would queue anew.
func endLease(ctx context.Context, client *clientv3.Client, s subject, holders []concurrency.Request, is func(concurrency.Request) bool, err error) error {
	i := slices.IndexFunc(holders, is)
	if i < 0 || !strings.HasPrefix(holders[i].Owner, holdOwner) || err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		return err
	}
	_, failed := client.Revoke(ctx, holders[i].Lease)
	switch {
	case failed == nil || errors.Is(failed, rpctypes.ErrLeaseNotFound):
		return nil
	case err == nil:
		return fmt.Errorf("%s: it has ended, but its lease could not be revoked, and expires: %w", s, failed)
	}
	return err
}

// releaser is a queue whose permits have IDs.
type releaser interface {
	ReleaseID(ctx context.Context, id string, opts ...concurrency.ReleaseOption) error
}

// releasing returns the command that releases a permit, as a shell takes it.
func (a *app) releasing(name, id string) string {
	space := "-N " + word(a.etcd.namespace)
	if a.etcd.prefix != keyspace.DefaultPrefix {
		space += " --prefix " + word(a.etcd.prefix)
	}
	if printable(id) != id || strings.ContainsRune(id, utf8.RuneError) { // what is shown of it is not the ID
		return fmt.Sprintf("etcdkit release %s %s --id, with the ID that hold was given", space, word(name))
	}
	return fmt.Sprintf("etcdkit release %s %s --id %s", space, word(name), word(id))
}

// released is what `release` is asked to release.
type released struct {
	id    string
	token int64 // or 0
}

// is reports whether a request may be the one. What is no text in its ID is shown as U+FFFD.
func (w released) is(r concurrency.Request) bool {
	return r.ID == string([]rune(w.id)) && (w.token == 0 || r.Token == w.token)
}

func (a *app) releaseID(ctx context.Context, client *clientv3.Client, sess *concurrency.Session, s subject, which released) error {
	q, err := queueOf(sess, s)
	if err != nil {
		return err
	}
	by, ok := q.(releaser)
	switch {
	case s.kind == concurrency.KindLimiter && s.key == "":
		return usageError{fmt.Errorf("%s: a permit with an ID is one of a key: %s/KEY; 'etcdkit show' lists the keys", s, s)}
	case !ok:
		return usageError{fmt.Errorf("%s: a term has no ID by which it is released; 'etcdkit evict' asks its leader to resign", s)}
	}
	st, err := q.Status(ctx)
	if err != nil {
		return err
	}
	err = fmt.Errorf("%s: %w: none has the ID %q", s, concurrency.ErrNotHeld, which.id)
	if which.token != 0 {
		err = fmt.Errorf("%w and the token %d", err, which.token)
	}
	for _, r := range slices.Concat(st.Holders, st.Waiters) {
		if !which.is(r) {
			continue
		}
		if strings.HasPrefix(r.Owner, runOwner) {
			err = fmt.Errorf("%s: the request %q is of a command that may still work (%s), and ends with that; 'etcdkit evict' asks it to end, by its token %d", s, which.id, r.Owner, r.Token)
			continue
		}
		released := by.ReleaseID(ctx, which.id, concurrency.OnlyToken(r.Token)) // and not what has the ID by now
		if errors.Is(released, concurrency.ErrNotHeld) {
			continue // it has ended, or its ID is not text and looks like this one
		}
		err = endLease(ctx, client, s, st.Holders, func(other concurrency.Request) bool { return other.Token == r.Token }, released)
		break
	}
	if err != nil {
		return err
	}
	return a.printChange(struct {
		schema
		Name     string `json:"name"`
		ID       string `json:"id"`
		Released bool   `json:"released"`
	}{schemaOf("released"), s.String(), which.id, true}, func(t *table) { t.line(fmt.Sprintf("%s: the permit %q is released", s, which.id)) })
}
