package permits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// How owners begin.
const (
	holdOwner = record.HoldOwner // of a session that no process renews
	runOwner  = "etcdkit run "   // of one whose permit is released when a command has ended
)

// Hold returns the verb hold.
func Hold(c *verb.Call) *cobra.Command {
	k := keeping{call: c}
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

The token and the time at which the permit ends are printed. If they cannot be, the permit is released; if their
reader has gone while the request waits, that is withdrawn, and the exit code is 141. A standard
output that is closed (>&-) is /dev/null to this program, which takes them.`,
		Example: "etcdkit hold -N deploy production --id deploy-42 --for 30m\n" +
			"etcdkit hold -N deploy staging --limit 3 --id build-7 --for 10m --wait 5m -o json",
		Args: verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.read(cmd.Flags(), args[0]); err != nil {
				return err
			}
			return k.keep(cmd.Context())
		},
	}
	k.ask.define(cmd.Flags())
	cmd.Flags().DurationVar(&k.lasts, "for", 0, "how long the permit lasts at most, from 5s to 24h (required)")
	return cmd
}

// leaseSlack is how much later than at its end etcd ends a lease: within seconds.
const leaseSlack = 10 * time.Second

// heldPermit is what `hold` prints as JSON.
type heldPermit struct {
	output.Form
	Name  string        `json:"name"`
	ID    string        `json:"id"`
	Token output.Number `json:"token"`
	Lease output.Number `json:"lease"`
	Until time.Time     `json:"until"`
}

// keeping is what `hold` is asked for.
type keeping struct {
	call  *verb.Call
	ask   asking
	kind  concurrency.QueueKind
	name  string
	lasts time.Duration
}

// read takes the argument, and checks it and the flags.
func (k *keeping) read(f *pflag.FlagSet, name string) (err error) {
	k.name = name
	k.ask.lasts = 2*k.lasts + leaseSlack // a new leader of etcd's begins the lease anew: the permit is not overdue then
	k.kind, err = k.ask.check(f)
	switch {
	case err != nil:
		return err
	case k.kind == concurrency.KindElection:
		return exit.Usagef("--leader: a leader is a process; 'etcdkit run --leader' is one as long as its command runs")
	case k.ask.id == "":
		return exit.Usagef("--id is missing: 'etcdkit release' finds the permit by it")
	case k.lasts < 5*time.Second || k.lasts > 24*time.Hour || k.lasts%time.Second != 0:
		return exit.Usagef("--for %v is not a number of whole seconds from 5s to 24h", k.lasts)
	}
	return checkName(name)
}

// keep acquires a permit on a lease of its own, and leaves both in etcd.
func (k *keeping) keep(ctx context.Context) error {
	k.call.SurviveReader()
	reports := &waitReports{call: k.call, kind: k.kind}
	opts := &concurrency.SessionOptions{TTL: k.lasts, Owner: verb.Owner("hold"), Hooks: []observe.Hooks{reports.hooks()}}
	return k.call.Connected(ctx, opts, func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
		reports.sess.Store(sess)
		var lease clientv3.LeaseID
		var ends time.Time
		p, err := acquire(ctx, k.call.Following, sess, k.ask, k.kind, k.name, k.call.Etcd.Timeout)
		if err == nil {
			lease, ends, err = renew(ctx, k.call, client, sess) // it has aged while the request waited
		}
		if err == nil {
			err = p.Err()
		}
		if err != nil {
			k.withdraw(ctx, sess, p)
			return err
		}
		if err = leave(ctx, client, sess, p); err == nil {
			if err = k.print(p.Token(), lease, ends); err == nil {
				return nil
			}
			err = fmt.Errorf("the permit was granted, but its token cannot be printed: %w", err)
		}
		// Its caller takes that for a permit that it does not have.
		if failed := revoke(ctx, k.call, lease); failed != nil {
			return fmt.Errorf("%w; it is held as %q until 'etcdkit release' or %s UTC, since its lease cannot be revoked: %w",
				err, k.ask.id, ends.UTC().Format(time.DateTime), failed)
		}
		return fmt.Errorf("%w; it is released", err)
	})
}

// withdraw ends the request, and its permit if there is one.
func (k *keeping) withdraw(ctx context.Context, sess *concurrency.Session, p *concurrency.Permit) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if p != nil {
		_ = p.Release(closing) // Close waits for that
	}
	if sess.Close(closing) != nil { // its lease is not revoked, and would last as long as the permit
		fmt.Fprintf(k.call.Std.Err,
			"etcdkit hold: etcd has not confirmed that the request has ended: it may hold a permit now or later, for %v. This ends it: %s\n",
			k.lasts, releasing(k.call, string(k.kind)+"/"+k.name, k.ask.id))
	}
}

// leave ends the session without its permit and its lease. It returns an error if the permit was lost before.
func leave(ctx context.Context, client *clientv3.Client, sess *concurrency.Session, p *concurrency.Permit) error {
	// Without its connection the session can neither renew the lease nor revoke it. To close the client alone ends
	// the session first, whose request to revoke the lease may still be sent then.
	_ = client.ActiveConnection().Close()
	err := p.Err() // if it was lost until then, its lease may be revoked already
	verb.Close(client)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = sess.Close(ended)
	return err
}

// print prints the permit.
func (k *keeping) print(token int64, lease clientv3.LeaseID, ends time.Time) error {
	name := fmt.Sprintf("%s/%s", k.kind, k.name)
	ends = ends.UTC()
	held := heldPermit{output.FormOf("hold"), name, k.ask.id, output.Number(token), output.Number(lease), ends.Truncate(time.Second)}
	return k.call.Print(held, func(t *output.Table) {
		t.Line(fmt.Sprintf("%s: token %d, held as %q until %s UTC", name, token, k.ask.id, ends.Format(time.DateTime)))
	})
}

// renew renews the lease of a session once, and returns when that ends at the earliest: it counts from the request,
// since the answer may be late.
func renew(
	ctx context.Context, c *verb.Call, client *clientv3.Client, sess *concurrency.Session,
) (lease clientv3.LeaseID, ends time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	asked := time.Now()
	renewed, err := client.KeepAliveOnce(ctx, sess.Lease())
	if err != nil {
		return 0, ends, fmt.Errorf("renew the lease of the permit: %w", err)
	}
	return renewed.ID, asked.Add(time.Duration(renewed.TTL) * time.Second), nil
}

// revoke ends a lease, if it still exists, by a connection of its own.
func revoke(ctx context.Context, c *verb.Call, lease clientv3.LeaseID) error {
	return c.WithClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Revoke(ctx, lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		return nil
	})
}

// releasing returns the command that releases a permit, as a shell takes it.
func releasing(c *verb.Call, name, id string) string {
	space := "-N " + output.ShellWord(c.Etcd.Namespace)
	if c.Etcd.Prefix != keyspace.DefaultPrefix {
		space += " --prefix " + output.ShellWord(c.Etcd.Prefix)
	}
	if output.Printable(id) != id || strings.ContainsRune(id, utf8.RuneError) { // what is shown of it is not the ID
		return fmt.Sprintf("etcdkit release %s %s --id, with the ID that hold was given", space, output.ShellWord(name))
	}
	return fmt.Sprintf("etcdkit release %s %s --id %s", space, output.ShellWord(name), output.ShellWord(id))
}
