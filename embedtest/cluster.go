package embedtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// Cluster is an etcd of one or more members, which are numbered from 0. Its methods may be
// called concurrently.
type Cluster struct {
	*servers
	external bool
	space    string // prefix of all keys, on an external cluster without a test

	mu       sync.Mutex
	admin    *clientv3.Client
	root     credentials
	clients  map[*Client]struct{}
	prefixes []string           // returned by Prefix, on an external cluster
	old      []*clientv3.Client // admin clients from before EnableAuth
	closed   bool
	done     chan struct{} // closed when Close has finished
	err      error         // of Close
}

type credentials struct{ name, password string }

// Close closes the clients, stops the members and removes the data directory, unless
// Options.Dir named it. It takes milliseconds, even while watches are open. Further calls
// return the result of the first.
//
// Close returns an error if the data cannot be removed, if the keys on an external cluster
// cannot be deleted, and if etcd failed on a member. The cluster is closed in any case.
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
	admins := append(slices.Clip(c.old), c.admin)
	c.mu.Unlock()
	c.end()
	defer close(c.done)

	for cl := range clients {
		cl.close()
	}
	c.err = c.deleteKeys(admins[len(admins)-1])
	for _, a := range admins {
		if a != nil {
			_ = a.Close()
		}
	}
	c.err = errors.Join(c.err, c.stop())
	c.err = errors.Join(c.err, c.firstFailure())
	return c.err
}

// Client returns the cluster's own client, into which no faults are injected. After
// EnableAuth it has all permissions. Close closes it; the caller must not.
func (c *Cluster) Client() *clientv3.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admin
}

// Endpoints returns the client URL of each member, in the order of their numbers.
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

// External reports whether this is the cluster of EMBEDTEST_ENDPOINTS. Calls that would
// break its servers return ErrExternal.
func (c *Cluster) External() bool { return c.external }

// Prefix returns a unique key prefix for each call. It contains the name of the test and
// ends with a slash. On an external cluster, Cluster.Close deletes the keys below it after
// the clients are closed.
func (c *Cluster) Prefix(tb TB) string {
	tb.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, tb.Name())
	prefix := uniquePrefix(name)
	if c.external {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.prefixes = append(c.prefixes, prefix)
	}
	return prefix
}

// deleteKeys deletes the keys of this cluster value from an external cluster.
func (c *Cluster) deleteKeys(admin *clientv3.Client) error {
	if !c.external || admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	below := c.prefixes
	if c.space != "" {
		below = append(below, "") // all keys: etcd's namespace wrapper adds c.space
	}
	for _, prefix := range below {
		if _, err := admin.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
			return fmt.Errorf("embedtest: delete the keys below %s: %w", c.space+prefix, err)
		}
	}
	return nil
}

// confine limits a client to the key space of this cluster value. A cluster without a test
// needs it: examples and main programs use fixed keys and not those of Prefix.
func (c *Cluster) confine(cl *clientv3.Client) {
	if c.space == "" {
		return
	}
	cl.KV = namespace.NewKV(cl.KV, c.space)
	cl.Watcher = namespace.NewWatcher(cl.Watcher, c.space)
	cl.Lease = namespace.NewLease(cl.Lease, c.space)
}

// ownServer returns nil if this package started the members. On an external cluster it skips
// the test of the cluster, or returns ErrExternal if there is none.
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

var errClosed = errors.New("embedtest: the cluster is closed (Cluster.Close)")
