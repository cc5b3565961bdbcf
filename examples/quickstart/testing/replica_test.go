package thumbs

import (
	"context"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// replicas returns a semaphore of limit 1 as two replicas of the service have it. For etcd they are two processes: each
// has a client and a session of its own.
func replicas(t *testing.T, etcd *embedtest.Cluster) (first, second *concurrency.Semaphore) {
	prefix := etcd.Prefix(t) // keys of this test only
	return replica(t, etcd, prefix), replica(t, etcd, prefix)
}

func replica(t *testing.T, etcd *embedtest.Cluster, prefix string) *concurrency.Semaphore {
	client := etcd.NewClient(t, nil) // client.Cut() cuts this replica off, client.Heal() ends that
	sess, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{
		Prefix: prefix,
		TTL:    2 * time.Second, Margin: 500 * time.Millisecond, // short: permits are lost 1.5 s after the last renewal
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	sem, err := concurrency.NewSemaphore(sess, "render", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sem
}

func page(context.Context) {}
