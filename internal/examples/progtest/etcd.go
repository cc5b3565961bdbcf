package progtest

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Secured is an etcd as people have it: with TLS, for clients that have a certificate and are a user.
type Secured struct {
	*embedtest.Cluster
	front *front
}

// Flags returns the flags for this etcd, as those of etcdctl, with more arguments behind them.
func (s *Secured) Flags(more ...string) []string {
	return append([]string{"-endpoints", s.front.endpoint, "-cacert", s.front.cacert, "-cert", s.front.cert, "-key", s.front.key, "-user", "example:secret"}, more...)
}

// Etcd starts an etcd for the flag -endpoints. Its user example may read and write the keys of etcdkit, and those
// below some more prefixes. At the end of the test, it fails t if the number of keys has changed.
func Etcd(t *testing.T, prefixes ...string) *Secured {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s := &Secured{Cluster: embedtest.Start(t, &embedtest.Options{TLS: true})}
	if err := s.AddUser(ctx, "example", "secret", append(prefixes, keyspace.DefaultPrefix+"/")...); err != nil {
		t.Fatal(err)
	}
	if err := s.EnableAuth(ctx, "root", "secret"); err != nil {
		t.Fatal(err)
	}
	count := func() int64 {
		t.Helper()
		resp, err := s.Client().Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	before := count()
	s.front = newFront(t, s.Endpoints()[0])
	t.Cleanup(func() {
		if after := count(); after != before {
			t.Errorf("%d keys before, %d after", before, after)
		}
	})
	return s
}
