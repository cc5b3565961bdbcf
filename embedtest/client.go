package embedtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Client is an etcd client with its own connections: for etcd it is another process. Its
// methods may be called concurrently.
type Client struct {
	*clientv3.Client
	*interceptor
	c    *Cluster
	link *link
}

// interceptor applies the faults of a client to its calls, and counts them.
type interceptor struct {
	faults *faults
	counts *counts
}

// ClientOptions are the settings of a client. The zero value and nil mean the defaults.
type ClientOptions struct {
	// Endpoints are the client URLs that the client connects to, for example
	// Cluster.Endpoints()[:1] for the first member only. Defaults to those of all
	// members.
	Endpoints []string

	// Username and Password authenticate the client. Defaults to no user, and after
	// EnableAuth to the user of that call.
	Username, Password string

	// Configure is called with the client's complete configuration and may change it.
	// Append to DialOptions and keep what is there: it implements the faults. Defaults
	// to none.
	Configure func(*clientv3.Config)
}

// NewClient returns a client with its own connections. tb.Cleanup closes it. An error
// fails tb.
func (c *Cluster) NewClient(tb TB, opts *ClientOptions) *Client {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cl, err := c.Dial(ctx, opts)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(cl.close)
	return cl
}

// Dial returns a client with its own connections; without authentication, its first
// request opens them. The caller may close the client. Cluster.Close closes it in any case.
//
// Dial returns an error if ctx has ended before the call, if the cluster is closed, if
// etcd's client rejects the configuration, and if the authentication fails, for example
// with rpctypes.ErrAuthFailed. Authentication may take five seconds to fail.
func (c *Cluster) Dial(ctx context.Context, opts *ClientOptions) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	cl := &Client{c: c, link: newLink(), interceptor: &interceptor{newFaults(), newCounts()}}
	cfg, err := c.clientConfig(&o)
	if err != nil {
		return nil, err
	}
	cfg.DialOptions = append(cfg.DialOptions,
		grpc.WithContextDialer(cl.link.dial),
		// etcd's client installs its retries as the outermost interceptor. Chained
		// interceptors run inside it and see every attempt.
		grpc.WithChainUnaryInterceptor(cl.unary),
		grpc.WithChainStreamInterceptor(cl.stream),
	)
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	raw, err := newClient(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("embedtest: create client: %w", err)
	}
	c.confine(raw)
	cl.Client = raw
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.clients[cl] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		_ = raw.Close()
		return nil, errClosed
	}
	return cl, nil
}

// newClient calls clientv3.New, which authenticates if there is a user, and retries until
// ctx ends if an election is the reason for the failure.
func newClient(ctx context.Context, cfg clientv3.Config) (*clientv3.Client, error) {
	for {
		cl, err := clientv3.New(cfg)
		if !errors.Is(err, rpctypes.ErrLeaderChanged) && !errors.Is(err, rpctypes.ErrNoLeader) {
			return cl, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// dialAdmin creates the cluster's own client.
func (c *Cluster) dialAdmin() (*clientv3.Client, error) {
	cfg, err := c.clientConfig(&ClientOptions{})
	if err != nil {
		return nil, err
	}
	cl, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedtest: create client: %w", err)
	}
	c.confine(cl)
	return cl, nil
}

func (c *Cluster) clientConfig(o *ClientOptions) (clientv3.Config, error) {
	eps := o.Endpoints
	if len(eps) == 0 {
		eps = c.Endpoints()
	}
	if len(eps) == 0 {
		return clientv3.Config{}, errClosed
	}
	user := credentials{o.Username, o.Password}
	if user.name == "" {
		c.mu.Lock()
		user = c.root
		c.mu.Unlock()
	}
	cfg := clientv3.Config{
		Endpoints:   eps,
		DialTimeout: 5 * time.Second, // of authentication
		Username:    user.name,
		Password:    user.password,
		Logger:      c.log.Named("client"),
		DialOptions: []grpc.DialOption{
			// gRPC's default back-off grows to minutes. A test that heals a network
			// needs the client to reconnect at once.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
				MinConnectTimeout: 5 * time.Second,
			}),
		},
	}
	if c.tls != nil {
		cfg.TLS = c.tls.client.Clone()
	}
	return cfg, nil
}

// connect creates the admin client and waits until a linearizable read succeeds.
func (c *Cluster) connect(ctx context.Context) error {
	admin, err := c.dialAdmin()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.admin = admin
	c.mu.Unlock()
	if err := waitRead(ctx, admin); err != nil {
		return fmt.Errorf("embedtest: start: no linearizable read succeeded: %w", err)
	}
	// The leader still writes the cluster's version into the log. A test that counts
	// raft entries must not count that one.
	for !c.external && !c.versionKnown() {
		if err := sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("embedtest: start: a member does not know the cluster's version: %w", err)
		}
	}
	return nil
}

// Close closes the client's connections and ends the calls that faults hold. Further calls
// of Close do nothing. Close returns an error only if etcd's client does; the connections
// are closed even then.
func (cl *Client) Close() error {
	cl.c.mu.Lock()
	delete(cl.c.clients, cl)
	cl.c.mu.Unlock()
	cl.faults.close()
	closed := make(chan error, 1)
	go func() { closed <- cl.Client.Close() }()
	select {
	case err := <-closed:
		if errors.Is(err, context.Canceled) {
			return nil // closed before
		}
		return err
	case <-time.After(closeTimeout):
		_ = cl.ActiveConnection().Close()
		return nil
	}
}

// closeTimeout bounds Close: clientv3.Client.Close never returns if a watch is refused (by
// an expired token, for example) while its stream ends. Close then leaves two or three
// goroutines behind and nothing else.
const closeTimeout = 3 * time.Second

func (cl *Client) close() { _ = cl.Close() }
