package progtest

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// Etcd starts an etcd for the flag -endpoints. At the end of the test, it fails t if the number
// of keys has changed.
func Etcd(t *testing.T) *embedtest.Cluster {
	t.Helper()
	c := embedtest.Start(t, nil)
	if c.External() {
		t.Skip("other tests may write to the external cluster")
	}
	count := func() int64 {
		t.Helper()
		resp, err := c.Client().Get(context.WithoutCancel(t.Context()), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	before := count()
	t.Cleanup(func() {
		if after := count(); after != before {
			t.Errorf("%d keys before, %d after", before, after)
		}
	})
	return c
}
