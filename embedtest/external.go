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

func uniquePrefix(name string) string {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return "/embedtest/" + name + "-" + hex.EncodeToString(id[:]) + "/"
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

func externalEndpoints() []string {
	var eps []string
	for ep := range strings.SplitSeq(os.Getenv("EMBEDTEST_ENDPOINTS"), ",") {
		if ep = strings.TrimSpace(ep); ep != "" {
			eps = append(eps, ep)
		}
	}
	return eps
}
