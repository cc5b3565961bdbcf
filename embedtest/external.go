package embedtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// External reports whether this is the cluster of EMBEDTEST_ENDPOINTS, whose
// servers cannot be broken.
func (c *Cluster) External() bool { return c.external }

// Prefix returns a key prefix that nobody else has: one per call, named after
// the test, ending in a slash. On an external cluster Close deletes the keys below
// it after it has closed the clients; elsewhere they go with the server.
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

func uniquePrefix(name string) string {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return "/embedtest/" + name + "-" + hex.EncodeToString(id[:]) + "/"
}

// tidy deletes what a test has left on an external cluster.
func (c *Cluster) tidy(admin *clientv3.Client) error {
	if !c.external || admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	below := c.prefixes
	if c.space != "" {
		below = append(below, "") // all of it; etcd's wrapper wants no prefix
	}
	for _, prefix := range below {
		if _, err := admin.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
			return fmt.Errorf("embedtest: keys below %s stay behind: %w", c.space+prefix, err)
		}
	}
	return nil
}

// confine makes a client see nothing but the keys of this cluster value. Without
// a test there is no prefix that the caller could keep to: examples and main
// programs use the keys that their readers are to see.
func (c *Cluster) confine(cl *clientv3.Client) {
	if c.space == "" {
		return
	}
	cl.KV = namespace.NewKV(cl.KV, c.space)
	cl.Watcher = namespace.NewWatcher(cl.Watcher, c.space)
	cl.Lease = namespace.NewLease(cl.Lease, c.space)
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
