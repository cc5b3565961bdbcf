package embedtest

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Cluster is an etcd of one or more members, which are numbered from 0. Its methods may be
// called concurrently.
type Cluster struct {
	opts     Options
	tb       TB // nil when started without a test
	external bool
	space    string // prefix of all keys, on an external cluster without a test
	log      *zap.Logger
	logBuf   *logBuffer
	dir      string
	ownDir   *dataDir // nil if Options.Dir names dir
	tls      *serverTLS
	members  []*member
	abort    context.CancelCauseFunc // cancels the start

	mu       sync.Mutex
	admin    *clientv3.Client
	root     credentials
	clients  map[*Client]struct{}
	prefixes []string           // returned by Prefix, on an external cluster
	old      []*clientv3.Client // admin clients from before EnableAuth
	started  bool
	failure  error // the first fatal error of etcd
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
	admins := append(c.old, c.admin)
	c.mu.Unlock()
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
	c.err = errors.Join(c.err, c.stopMembers())
	c.mu.Lock()
	c.err = errors.Join(c.err, c.failure)
	c.mu.Unlock()
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
	if c.ownDir == nil {
		return nil
	}
	return c.ownDir.remove()
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

var errClosed = errors.New("embedtest: the cluster is closed (Cluster.Close)")
