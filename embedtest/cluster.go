package embedtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// startTimeout bounds Start; a healthy start is a hundred times faster.
const startTimeout = 30 * time.Second

// Cluster is a running etcd of one or more members. All methods may be called
// from several goroutines at once.
type Cluster struct {
	opts     Options
	tb       TB // nil when started without a test
	external bool
	log      *zap.Logger
	logBuf   *logBuffer
	dir      string
	ownDir   bool
	tls      *serverTLS
	members  []*member

	mu      sync.Mutex
	admin   *clientv3.Client
	root    credentials
	clients map[*Client]struct{}
	old     []*clientv3.Client // admin clients from before EnableAuth
	closed  bool
	done    chan struct{} // closed when Close has finished
	err     error         // of Close
}

type credentials struct{ user, password string }

// Start starts a cluster for one test and returns when it answers a
// linearizable read. It is closed by tb.Cleanup. Errors fail tb, with the
// servers' log. With EMBEDTEST_ENDPOINTS set no server is started, and options
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
		if err := c.Close(); err != nil {
			tb.Logf("embedtest: close: %v", err)
		}
		if tb.Failed() && c.logBuf != nil {
			tb.Logf("embedtest: log of etcd:\n%s", c.logBuf)
		}
	})
	return c
}

// StartCluster is Start with a number of members.
func StartCluster(tb TB, members int, opts *Options) *Cluster {
	tb.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Members = members
	return Start(tb, &o)
}

// New starts a cluster without a test and returns when it answers a
// linearizable read; the caller closes it. The end of ctx before that makes
// New stop what it started and return ctx's error; ctx has no meaning
// afterwards. Other errors are invalid options, what etcd itself returns from
// starting, and ErrExternal when options ask for what the external cluster
// cannot be assumed to have.
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
		err = c.connect(ctx)
	} else {
		err = c.startMembers(ctx)
	}
	if err != nil {
		if c.logBuf != nil {
			err = fmt.Errorf("%w\nlog of etcd:\n%s", err, c.logBuf)
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
		if err = c.startAll(ctx); err == nil {
			return c.connect(ctx)
		}
		if portsHeld || !addressTaken(err) || !c.ownDir {
			return err
		}
		c.stopMembers()
	}
	return err
}

func (c *Cluster) makeDir() (err error) {
	c.dir, c.ownDir = c.opts.Dir, c.opts.Dir == ""
	if c.ownDir {
		parent := ""
		if c.tb != nil {
			parent = c.tb.TempDir()
		}
		c.dir, err = os.MkdirTemp(parent, "etcd-")
	} else {
		err = os.MkdirAll(c.dir, 0o700)
	}
	if err != nil {
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

// Close closes the clients, then the servers, and removes the data directory
// unless Options.Dir named it. It takes milliseconds even while watches are
// open, and may be called again. It returns an error when the data cannot be
// removed; the cluster is closed in any case.
func (c *Cluster) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return c.err
	}
	c.closed = true
	clients := c.clients
	c.clients = nil
	admins := append(c.old, c.admin)
	c.mu.Unlock()
	defer close(c.done)

	for cl := range clients {
		cl.close()
	}
	for _, a := range admins {
		if a != nil {
			_ = a.Close()
		}
	}
	c.err = c.stopMembers()
	return c.err
}

func (c *Cluster) stopMembers() error {
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(func() {
			m.stop(true)
			m.release()
		})
	}
	wg.Wait()
	if c.ownDir && c.dir != "" {
		if err := os.RemoveAll(c.dir); err != nil {
			return fmt.Errorf("embedtest: remove the data: %w", err)
		}
	}
	return nil
}

// Client returns the cluster's own client, with plain connections and, after
// EnableAuth, the rights of root. It is closed by Close; do not close it.
func (c *Cluster) Client() *clientv3.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admin
}

// Endpoints returns the client URLs of all members, in their order.
func (c *Cluster) Endpoints() []string {
	if c.external {
		return externalEndpoints()
	}
	eps := make([]string, len(c.members))
	for i, m := range c.members {
		eps[i] = m.endpoint()
	}
	return eps
}

// External reports whether this is the cluster of EMBEDTEST_ENDPOINTS, whose
// servers cannot be broken.
func (c *Cluster) External() bool { return c.external }

// Prefix returns a key prefix that nobody else has: one per call, named after
// the test, ending in a slash. On an external cluster the keys below it are
// deleted at the test's end; elsewhere they go with the server.
func (c *Cluster) Prefix(tb TB) string {
	tb.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, tb.Name())
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	prefix := "/embedtest/" + name + "-" + hex.EncodeToString(id[:]) + "/"
	if c.external {
		tb.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if _, err := c.Client().Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
				tb.Logf("embedtest: keys below %s stay behind: %v", prefix, err)
			}
		})
	}
	return prefix
}

// ownServer returns nil when the members are ours to break. On an external
// cluster it skips the test that the cluster was started for.
func (c *Cluster) ownServer() error {
	if !c.external {
		return nil
	}
	if c.tb != nil {
		c.tb.Helper()
		c.tb.Skipf("%v", ErrExternal)
	}
	return ErrExternal
}

func externalEndpoints() []string {
	var eps []string
	for ep := range strings.SplitSeq(os.Getenv("EMBEDTEST_ENDPOINTS"), ",") {
		if ep = strings.TrimSpace(ep); ep != "" {
			eps = append(eps, ep)
		}
	}
	return eps
}

var errClosed = errors.New("embedtest: the cluster is closed")
