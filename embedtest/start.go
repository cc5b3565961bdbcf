package embedtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// startTimeout bounds Start, Shared and NewClient. On an idle machine they take less than a
// hundredth of it.
const startTimeout = 30 * time.Second

// Start starts a cluster for one test and returns when the cluster serves linearizable
// reads. tb.Cleanup closes it. An error fails tb and logs the servers' log. If etcd fails
// later on a member, tb fails too.
//
// With EMBEDTEST_ENDPOINTS set, no server is started, and options that the external
// cluster may not satisfy skip tb. Call Start on the goroutine of the test.
func Start(tb TB, opts *Options) *Cluster {
	tb.Helper()
	if eps := externalEndpoints(); eps != nil && opts.needsOwnServer(len(eps)) {
		tb.Skipf("%v", ErrExternal)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := newCluster(ctx, tb, opts)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(func() {
		err := c.Close()
		c.mu.Lock()
		failed := c.failure != nil
		c.mu.Unlock()
		if log := c.logged(); log != "" && (tb.Failed() || failed) {
			tb.Logf("embedtest: %s", log)
		}
		if failed {
			tb.Fatalf("%v", err)
		} else if err != nil {
			tb.Logf("embedtest: close: %v", err)
		}
	})
	return c
}

// New starts a cluster without a test and returns when the cluster serves linearizable
// reads. The caller closes it. ctx bounds the start only: if ctx ends first, New stops
// what it started and returns the error of ctx.
//
// New also returns an error for invalid options, if the disk space is too small, and if
// etcd does not start, and ErrExternal for options that the external cluster may not
// satisfy. If etcd fails later on a member, the servers' log is written to standard error
// and the process exits.
//
// On an external cluster, the clients of the cluster, those of Dial included, have a key
// space of their own: a prefix below /embedtest/, which Close empties.
func New(ctx context.Context, opts *Options) (*Cluster, error) {
	if eps := externalEndpoints(); eps != nil && opts.needsOwnServer(len(eps)) {
		return nil, ErrExternal
	}
	return newCluster(ctx, nil, opts)
}

func newCluster(ctx context.Context, tb TB, opts *Options) (*Cluster, error) {
	o, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		opts:    o,
		tb:      tb,
		clients: make(map[*Client]struct{}),
		done:    make(chan struct{}),
	}
	c.log, c.logBuf = newLogger(o.Logger)
	if eps := externalEndpoints(); eps != nil {
		c.external = true
		if tb == nil {
			c.space = uniquePrefix("new")
		}
		err = c.connect(ctx)
	} else {
		ctx, c.abort = context.WithCancelCause(ctx)
		defer c.abort(nil)
		err = c.startEnded(c.startMembers(ctx))
	}
	if err != nil {
		if log := c.logged(); log != "" {
			err = fmt.Errorf("%w\n%s", err, log)
		}
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// startMembers starts all members and connects. Where the system cannot reserve ports,
// it retries with other ports if another process has bound one.
func (c *Cluster) startMembers(ctx context.Context) (err error) {
	if c.opts.TLS {
		if c.tls, err = newServerTLS(); err != nil {
			return err
		}
	}
	for range 5 {
		if err = c.makeDir(); err != nil {
			return err
		}
		if err = c.addMembers(); err != nil {
			return err
		}
		if err = c.checkRoom(c.members...); err != nil {
			return err
		}
		if err = c.startAll(ctx); err == nil {
			return c.connect(ctx)
		}
		if ports.Held || !ports.Taken(err) || c.ownDir == nil {
			return err
		}
		c.stopMembers()
	}
	return err
}

func (c *Cluster) makeDir() (err error) {
	if c.dir = c.opts.Dir; c.dir == "" {
		if c.ownDir, err = newDataDir(); err == nil {
			c.dir = c.ownDir.path()
		}
		return err
	}
	if err = os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("embedtest: create data directory: %w", err)
	}
	return nil
}

// startAll starts the members one after the other and then waits for all: a member that
// finds the port of another one bound but not served waits a whole second for it.
func (c *Cluster) startAll(ctx context.Context) error {
	for _, m := range c.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.waitServing(ctx); err != nil {
			return err
		}
	}
	return nil
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

func (c *Cluster) versionKnown() bool {
	for _, m := range c.members {
		if r := m.running(); r != nil && r.etcd.Server.ClusterVersion() == nil {
			return false
		}
	}
	return true
}
