package embedtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
