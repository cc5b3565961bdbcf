package embedtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// startTimeout bounds Start; a healthy start is a hundred times faster.
const startTimeout = 30 * time.Second

// Start starts a cluster for one test and returns when it answers a
// linearizable read. It is closed by tb.Cleanup. Errors fail tb, with the
// servers' log, and so does a member on which etcd gives up later. With EMBEDTEST_ENDPOINTS set no server is started, and options
// that only an own server can honour skip tb. Call it on the test's goroutine.
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
		gaveUp := c.gaveUp != nil
		c.mu.Unlock()
		if log := c.logged(); log != "" && (tb.Failed() || gaveUp) {
			tb.Logf("embedtest: %s", log)
		}
		if gaveUp {
			tb.Fatalf("%v", err)
		} else if err != nil {
			tb.Logf("embedtest: close: %v", err)
		}
	})
	return c
}

// New starts a cluster without a test and returns when it answers a
// linearizable read; the caller closes it. The end of ctx before that makes
// New stop what it started and return ctx's error; ctx has no meaning
// afterwards. Other errors are invalid options, too little disk space, what etcd
// itself returns from starting, and ErrExternal when options ask for what the
// external cluster cannot be assumed to have. If etcd gives up on a member later,
// the servers' log is written to standard error and the process ends.
//
// On an external cluster its clients, those of Dial included, see a key space of
// their own, which is below /embedtest/ for everybody else. Close empties it.
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
		err = c.begun(c.startMembers(ctx))
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

// startMembers starts all members and connects. Where ports cannot be held it
// begins anew, with other ports, when somebody took one.
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
		return fmt.Errorf("embedtest: data directory: %w", err)
	}
	return nil
}

// startAll starts the members one after the other without waiting in between:
// a member that finds another's port bound but not served waits a whole second
// for it.
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

// connect makes the admin client and proves that a linearizable read works.
func (c *Cluster) connect(ctx context.Context) error {
	admin, err := c.dialAdmin()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.admin = admin
	c.mu.Unlock()
	if err := waitRead(ctx, admin); err != nil {
		return fmt.Errorf("embedtest: not ready: %w", err)
	}
	// The leader still has to write the cluster's version into the log; a test
	// that counts raft entries must not see that one.
	for !c.external && !c.versionKnown() {
		if err := sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("embedtest: not ready: %w", err)
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
