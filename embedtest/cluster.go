package embedtest

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Cluster is a running etcd of one or more members. All methods may be called
// from several goroutines at once.
type Cluster struct {
	opts     Options
	tb       TB // nil when started without a test
	external bool
	space    string // where all keys lie, on an external cluster without a test
	log      *zap.Logger
	logBuf   *logBuffer
	dir      string
	ownDir   *dataDir // nil if Options.Dir names dir
	tls      *serverTLS
	members  []*member
	abort    context.CancelCauseFunc // ends the start

	mu       sync.Mutex
	admin    *clientv3.Client
	root     credentials
	clients  map[*Client]struct{}
	prefixes []string           // that Prefix has given out on an external cluster
	old      []*clientv3.Client // admin clients from before EnableAuth
	started  bool
	gaveUp   error // of a member that had started
	closed   bool
	done     chan struct{} // closed when Close has finished
	err      error         // of Close
}

type credentials struct{ user, password string }

// Close closes the clients, then the servers, and removes the data directory
// unless Options.Dir named it. It takes milliseconds even while watches are
// open, and may be called again. It returns an error when the data, or on an
// external cluster the keys, cannot be removed, and when etcd gave up on a member; the
// cluster is closed in any case.
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
	c.err = c.tidy(admins[len(admins)-1])
	for _, a := range admins {
		if a != nil {
			_ = a.Close()
		}
	}
	c.err = errors.Join(c.err, c.stopMembers())
	c.mu.Lock()
	c.err = errors.Join(c.err, c.gaveUp)
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

var errClosed = errors.New("embedtest: the cluster is closed")
