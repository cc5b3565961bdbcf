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

// Client is an etcd client with connections of its own: to the servers it is
// another process. Its methods may be called from several goroutines at once.
type Client struct {
	*clientv3.Client
	c      *Cluster
	link   *link
	faults *faults
	counts *counts
}

// ClientOptions says how a client connects. Nil means the defaults.
type ClientOptions struct {
	// Endpoints are the servers that the client connects to, for example
	// Cluster.Endpoints()[:1] for the first member only. Defaults to all members.
	Endpoints []string

	// Username and Password authenticate the client. Defaults to none, and
	// after EnableAuth to the user made there.
	Username, Password string

	// Configure has the last word on the client's configuration. Append to
	// DialOptions instead of replacing them: the faults live there. Defaults
	// to none.
	Configure func(*clientv3.Config)
}

// NewClient returns a client with connections of its own. The end of the test closes it,
// before the servers. Errors fail tb.
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

// Dial returns a client with connections of its own. The first request connects. The
// caller may close the client; Cluster.Close closes it in any case.
//
// Dial returns an error if ctx has ended, if the cluster is closed, if etcd's client
// refuses its configuration, and if the authentication fails, for example with
// rpctypes.ErrAuthFailed. Authentication may take five seconds to fail.
func (c *Cluster) Dial(ctx context.Context, opts *ClientOptions) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	cl := &Client{c: c, link: newLink(), faults: newFaults(), counts: newCounts()}
	cfg, err := c.clientConfig(&o)
	if err != nil {
		return nil, err
	}
	cfg.DialOptions = append(cfg.DialOptions,
		grpc.WithContextDialer(cl.link.dial),
		// etcd's client installs its retries as the one outer interceptor;
		// chained ones come after it and see every attempt.
		grpc.WithChainUnaryInterceptor(cl.unary),
		grpc.WithChainStreamInterceptor(cl.stream),
	)
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	raw, err := newClient(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("embedtest: client: %w", err)
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

// newClient is clientv3.New, which asks etcd if there is a user to authenticate. An
// election answers that with an error; newClient asks again until ctx ends.
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

// dialAdmin makes the cluster's own client.
func (c *Cluster) dialAdmin() (*clientv3.Client, error) {
	cfg, err := c.clientConfig(&ClientOptions{})
	if err != nil {
		return nil, err
	}
	cl, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedtest: client: %w", err)
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
	who := credentials{o.Username, o.Password}
	if who.user == "" {
		c.mu.Lock()
		who = c.root
		c.mu.Unlock()
	}
	cfg := clientv3.Config{
		Endpoints:   eps,
		DialTimeout: 5 * time.Second, // of authentication
		Username:    who.user,
		Password:    who.password,
		Logger:      c.log.Named("client"),
		DialOptions: []grpc.DialOption{
			// gRPC's own back-off grows to minutes; a test that mends a network
			// wants to see the effect now.
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

// Close closes the client's connections and ends the calls that faults hold.
// It may be called again. It returns an error only if etcd's client does, and
// the connections are closed even so.
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
	case <-time.After(hangs):
		_ = cl.ActiveConnection().Close()
		return nil
	}
}

// hangs is when Close takes etcd's client to wait for ever: it does if a watch was
// refused (by a token that has expired, for instance) and its stream ended at the same
// time. Nothing but two or three goroutines is left of it.
const hangs = 3 * time.Second

func (cl *Client) close() { _ = cl.Close() }
