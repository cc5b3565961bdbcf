package verb

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// Session opens a session for one verb, and runs fn with it. The session is closed, and its lease
// revoked, before Session returns. fn's ctx is bounded by --command-timeout unless the verb is long. It
// returns an error of fn, or of the connection.
func (c *Call) Session(ctx context.Context, name string, fn func(context.Context, *concurrency.Session) error) error {
	return c.Open(ctx, name, &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
		defer cancel()
		return fn(ctx, sess)
	})
}

// Open is Session with options, and without a bound for fn. The session has no lease: it can acquire nothing. It
// returns an error as Session does.
func (c *Call) Open(
	ctx context.Context, name string, opts *concurrency.SessionOptions, fn func(context.Context, *concurrency.Session) error,
) error {
	opts.Owner = cmp.Or(opts.Owner, Owner(name))
	return c.Connected(engine.Leaseless(ctx), opts, func(ctx context.Context, _ *clientv3.Client, sess *concurrency.Session) error {
		return fn(ctx, sess)
	})
}

// Connected is Open for verbs that use the client as well, or whose session needs a lease. It returns an error
// as Session does.
func (c *Call) Connected(
	ctx context.Context, opts *concurrency.SessionOptions, fn func(context.Context, *clientv3.Client, *concurrency.Session) error,
) error {
	return c.Ending(ctx, opts, time.Second, fn)
}

// Ending is Connected for a session that waits longer for what is in progress when fn has returned: what etcd has not
// confirmed until then is lost with the session's lease. It returns an error as Session does.
func (c *Call) Ending(
	ctx context.Context, opts *concurrency.SessionOptions, wait time.Duration,
	fn func(context.Context, *clientv3.Client, *concurrency.Session) error,
) error {
	if _, err := c.Etcd.Space(); err != nil {
		return err
	}
	client, err := c.Etcd.Client(ctx)
	if err != nil {
		return err
	}
	defer Close(client)
	opts.Prefix = c.Etcd.Prefix
	opening, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, c.Etcd.Namespace, opts)
	if err != nil {
		return WithReason(client, err) // it names the endpoints
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
		defer cancel()
		_ = sess.Close(closing) // at worst its lease expires
	}()
	return exit.Early(ctx, WithReason(client, fn(ctx, client, sess)))
}

// Owner is the name by which other processes see the session of a verb. Notices and records have it, so
// it names the verb, the user and the host.
func Owner(name string) string {
	by := "?"
	if u, err := user.Current(); err == nil {
		by = u.Username
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("etcdkit %s by %s@%s, process %d", name, by, host, os.Getpid())
}

// WithClient runs fn with a connection to etcd and without a session: for what needs read permission
// alone. fn's ctx ends if etcd has not answered for --command-timeout. It returns an error of fn, or of the connection.
func (c *Call) WithClient(ctx context.Context, fn func(context.Context, *clientv3.Client) error) error {
	client, err := c.Etcd.Client(ctx)
	if err != nil {
		return err
	}
	defer Close(client)
	ctx, answered, cancel := c.reading(ctx)
	defer cancel()
	client.KV = answering{client.KV, answered}
	return WithReason(client, Because(ctx, fn(ctx, client)))
}

// reading is Patience for reads of many keys. answered is called with the number of keys in each answer; a terminal
// shows their sum.
func (c *Call) reading(ctx context.Context) (_ context.Context, answered func(keys int), cancel func()) {
	ctx, alive, stop := c.Patience(ctx)
	p, read := c.Progress(), 0
	answered = func(keys int) {
		alive()
		read += keys
		p.Set("%d keys read", read)
	}
	return ctx, answered, func() { stop(); p.End() }
}

// answering is an etcd that reports each answer to a read.
type answering struct {
	clientv3.KV
	answered func(keys int)
}

func (k answering) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := k.KV.Get(ctx, key, opts...)
	if err == nil {
		k.answered(len(resp.Kvs))
	}
	return resp, err
}

// Queues reads the queues of a session's namespace, and ends if etcd has not answered for --command-timeout. It
// returns an error of etcd, and of ctx.
func (c *Call) Queues(ctx context.Context, sess *concurrency.Session, prefixes ...string) (*fleet.State, error) {
	ctx, answered, cancel := c.reading(ctx)
	defer cancel()
	s := engine.Of(sess)
	if prefixes == nil {
		prefixes = fleet.Queues(s.Space())
	}
	state, err := fleet.Read(ctx, answering{s.KV(), answered}, s.Space(), time.Now(), prefixes...)
	return state, Because(ctx, err)
}
