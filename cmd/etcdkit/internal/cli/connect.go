package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/etcdflags"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// connection is where etcd is, and what of it belongs to the services.
type connection struct {
	etcdflags.Connection
	timeout           time.Duration // of a request, or of a verb that does one thing
	prefix, namespace string

	once   sync.Once // of config
	made   *clientv3.Config
	failed error
}

// define defines the flags. Those that etcdctl has too have its names, meanings and defaults.
func (c *connection) define(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Endpoints, "endpoints", []string{"127.0.0.1:2379"}, "etcd's endpoints")
	f.DurationVar(&c.DialTimeout, "dial-timeout", 2*time.Second, "bound of the first connection to etcd")
	f.DurationVar(&c.timeout, "command-timeout", 5*time.Second, "bound of a request to etcd")
	f.DurationVar(&c.KeepAliveTime, "keepalive-time", 2*time.Second, "time between two probes of the connection")
	f.DurationVar(&c.KeepAliveTimeout, "keepalive-timeout", 6*time.Second, "time without an answer after which a connection is closed")
	c.Connection.Define(f)
	f.StringVar(&c.prefix, "prefix", keyspace.DefaultPrefix, "prefix of all keys: SessionOptions.Prefix of the services")
	f.StringVarP(&c.namespace, "namespace", "N", "", "namespace of the services: the third argument of their NewSession")
}

// config returns the configuration of a client. It asks for a password once, and may be called
// concurrently.
func (c *connection) config(ctx context.Context) (*clientv3.Config, error) {
	c.once.Do(func() { c.made, c.failed = c.newConfig(ctx) })
	return c.made, c.failed
}

func (c *connection) newConfig(ctx context.Context) (*clientv3.Config, error) {
	if len(c.Endpoints) == 0 {
		return nil, usageError{errors.New("--endpoints is empty")}
	}
	if c.timeout <= 0 || c.DialTimeout <= 0 {
		return nil, usageError{errors.New("--command-timeout and --dial-timeout are positive")}
	}
	var asking error // of a terminal that was asked
	config, err := c.Config(func(user string) (password string, err error) {
		if !term.IsTerminal(int(os.Stdin.Fd())) {
			return etcdflags.NoTerminal(user)
		}
		password, asking = askPassword(ctx, user)
		return password, asking
	})
	if err != nil && asking == nil {
		return nil, usageError{err}
	}
	return config, err
}

// askPassword asks the terminal.
func askPassword(ctx context.Context, user string) (string, error) {
	stdin := int(os.Stdin.Fd())
	fmt.Fprintf(os.Stderr, "password of %s: ", user)
	password, err := typed(ctx, stdin, func() (string, error) {
		secret, err := term.ReadPassword(stdin)
		return string(secret), err
	})
	fmt.Fprintln(os.Stderr)
	return password, err
}

// client connects to etcd. The caller closes it.
func (c *connection) client(ctx context.Context) (*clientv3.Client, error) {
	config, err := c.config(ctx)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, c.unreachable(withReasonOf(*config, err))
	}
	return client, nil
}

// withReason adds to an error that etcd has not answered that there is no connection, and why, or no leader. etcd's
// client repeats requests that only read until their ctx ends, and forgets the reason; it does not repeat
// this one.
func withReason(client *clientv3.Client, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || grpcCode(codes.Unavailable)(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(client.Ctx(), reasonTime)
	defer cancel()
	st, reason := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	switch {
	case reason == nil && st.Leader == 0 && st.GetHeader().GetClusterId() != 0: // without a cluster it is no etcd
		reason = rpctypes.ErrNoLeader
	case status.Code(reason) != codes.Unavailable:
		return err
	}
	return fmt.Errorf("%w: %w", err, reason)
}

// withReasonOf is withReason where there is no client: for those with a config.
func withReasonOf(config clientv3.Config, err error) error {
	config.Username, config.Password = "", "" // a client without a user sends nothing when it is made
	client, e := clientv3.New(config)
	if e != nil {
		return err
	}
	defer client.Close()
	return withReason(client, err)
}

// reasonTime bounds what a failed verb waits for its reason.
const reasonTime = 500 * time.Millisecond

// unreachable adds to an error which endpoints were tried.
func (c *connection) unreachable(err error) error {
	return fmt.Errorf("etcd at %s: %w", strings.Join(c.Endpoints, ","), err)
}

// space returns the keys of the namespace.
func (c *connection) space() (keyspace.Space, error) {
	if c.namespace == "" {
		return keyspace.Space{}, usageError{errors.New("--namespace is missing (or ETCDKIT_NAMESPACE): 'etcdkit ls' without it lists the namespaces")}
	}
	space, err := keyspace.New(c.prefix, c.namespace)
	if err != nil {
		return keyspace.Space{}, usageError{err}
	}
	return space, nil
}

// session opens a session for one verb, and runs fn with it. The session is closed, and its lease
// revoked, before session returns. fn's ctx is bounded by --command-timeout unless the verb is long.
func (a *app) session(ctx context.Context, verb string, fn func(context.Context, *concurrency.Session) error) error {
	return a.open(ctx, verb, &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		ctx, cancel := context.WithTimeout(ctx, a.etcd.timeout)
		defer cancel()
		return fn(ctx, sess)
	})
}

// open is session with options, and without a bound for fn. The session has no lease: it can acquire nothing.
func (a *app) open(ctx context.Context, verb string, opts *concurrency.SessionOptions, fn func(context.Context, *concurrency.Session) error) error {
	opts.Owner = cmp.Or(opts.Owner, owner(verb))
	return a.connected(engine.Leaseless(ctx), opts, func(ctx context.Context, _ *clientv3.Client, sess *concurrency.Session) error { return fn(ctx, sess) })
}

// connected is open for verbs that use the client as well, or whose session needs a lease.
func (a *app) connected(ctx context.Context, opts *concurrency.SessionOptions, fn func(context.Context, *clientv3.Client, *concurrency.Session) error) error {
	if _, err := a.etcd.space(); err != nil {
		return err
	}
	client, err := a.etcd.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	opts.Prefix = a.etcd.prefix
	opening, cancel := context.WithTimeout(ctx, a.etcd.timeout)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, a.etcd.namespace, opts)
	if err != nil {
		return withReason(client, err) // it names the endpoints
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = sess.Close(closing) // at worst its lease expires
	}()
	return withReason(client, fn(ctx, client, sess))
}

// owner is the name by which other processes see the session of a verb. Notices and records have it, so
// it names the verb, the user and the host.
func owner(verb string) string {
	name := "?"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("etcdkit %s by %s@%s, process %d", verb, name, host, os.Getpid())
}
