package verb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/internal/etcdflags"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Connection is where etcd is, and what of it belongs to the services.
type Connection struct {
	etcdflags.Connection
	Timeout           time.Duration // of a request, or of a verb that does one thing
	Prefix, Namespace string
	Dial              []grpc.DialOption // further ones, of tests

	once   sync.Once // of ClientConfig
	made   *clientv3.Config
	failed error
}

// Define defines the flags. Those that etcdctl has too have its names, meanings and defaults.
func (c *Connection) Define(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Endpoints, "endpoints", []string{"127.0.0.1:2379"}, "etcd's endpoints")
	f.DurationVar(&c.DialTimeout, "dial-timeout", 2*time.Second, "bound of the first connection to etcd")
	f.DurationVar(&c.Timeout, "command-timeout", 5*time.Second, "bound of a request to etcd")
	f.DurationVar(&c.KeepAliveTime, "keepalive-time", 2*time.Second, "time between two probes of the connection")
	f.DurationVar(&c.KeepAliveTimeout, "keepalive-timeout", 6*time.Second, "time without an answer after which a connection is closed")
	c.Connection.Define(f)
	f.StringVar(&c.Prefix, "prefix", keyspace.DefaultPrefix, "prefix of all keys: SessionOptions.Prefix of the services")
	f.StringVarP(&c.Namespace, "namespace", "N", "", "namespace of the services: the third argument of their NewSession")
}

// ClientConfig returns the configuration of a client. It asks for a password once, and may be called
// concurrently. It returns an error for files that it cannot read, and for flags that contradict each other.
func (c *Connection) ClientConfig(ctx context.Context) (*clientv3.Config, error) {
	c.once.Do(func() { c.made, c.failed = c.newConfig(ctx) })
	return c.made, c.failed
}

func (c *Connection) newConfig(ctx context.Context) (*clientv3.Config, error) {
	if len(c.Endpoints) == 0 {
		return nil, exit.Usagef("--endpoints is empty")
	}
	if c.Timeout <= 0 || c.DialTimeout <= 0 {
		return nil, exit.Usagef("--command-timeout and --dial-timeout are positive")
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
		return nil, exit.AsUsage(err)
	}
	if config != nil {
		config.DialOptions = append(config.DialOptions, c.Dial...)
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

// Client connects to etcd. The caller closes it. It returns an error as ClientConfig does, and if there is
// no connection.
func (c *Connection) Client(ctx context.Context) (*clientv3.Client, error) {
	config, err := c.ClientConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, c.Unreachable(withReasonOf(*config, err))
	}
	return client, nil
}

// WithReason returns an error as it is, and one that etcd has not answered with the reason: that there is no
// connection, and why, or no leader. etcd's client repeats requests that only read until their ctx ends, and
// forgets the reason; it does not repeat this one.
func WithReason(client *clientv3.Client, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || exit.IsUnavailable(err) {
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

// withReasonOf is WithReason where there is no client: for those with a config.
func withReasonOf(config clientv3.Config, err error) error {
	config.Username, config.Password = "", "" // a client without a user sends nothing when it is made
	client, e := clientv3.New(config)
	if e != nil {
		return err
	}
	defer Close(client)
	return WithReason(client, err)
}

// reasonTime bounds what a failed verb waits for its reason.
const reasonTime = 500 * time.Millisecond

// Unreachable returns an error with the endpoints that were tried.
func (c *Connection) Unreachable(err error) error {
	return fmt.Errorf("etcd at %s: %w", strings.Join(c.Endpoints, ","), err)
}

// Space returns the keys of the namespace. It returns an error of usage if there is none, or its name is not possible.
func (c *Connection) Space() (keyspace.Space, error) {
	if c.Namespace == "" {
		return keyspace.Space{}, exit.Usagef("--namespace is missing (or ETCDKIT_NAMESPACE): 'etcdkit ls' without it lists the namespaces")
	}
	space, err := keyspace.New(c.Prefix, c.Namespace)
	if err != nil {
		return keyspace.Space{}, exit.AsUsage(err)
	}
	return space, nil
}
