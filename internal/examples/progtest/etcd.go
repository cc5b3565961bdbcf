package progtest

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Secured is an etcd as people have it: with TLS, and with a user for the example.
type Secured struct {
	*embedtest.Cluster
	cacert string // a file
}

// Flags returns the flags for this etcd, as those of etcdctl, with more arguments behind them.
func (s *Secured) Flags(more ...string) []string {
	return append([]string{"-endpoints", strings.Join(s.Endpoints(), ","), "-cacert", s.cacert, "-user", "example:secret"}, more...)
}

// Etcd starts an etcd for the flag -endpoints. Its user example may read and write the keys of etcdkit, and those
// below some more prefixes. At the end of the test, it fails t if the number of keys has changed.
func Etcd(t *testing.T, prefixes ...string) *Secured {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s := &Secured{Cluster: embedtest.Start(t, &embedtest.Options{TLS: true}), cacert: filepath.Join(t.TempDir(), "ca.pem")}
	if err := s.AddUser(ctx, "example", "secret", append(prefixes, keyspace.DefaultPrefix+"/")...); err != nil {
		t.Fatal(err)
	}
	if err := s.EnableAuth(ctx, "root", "secret"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.cacert, certificate(t, s.Endpoints()[0]), 0o600); err != nil {
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
	t.Cleanup(func() {
		if after := count(); after != before {
			t.Errorf("%d keys before, %d after", before, after)
		}
	})
	return s
}

// certificate returns the certificate of a server, which has signed it itself.
func certificate(t *testing.T, endpoint string) []byte {
	t.Helper()
	at, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", at.Host, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // to learn what to trust
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw})
}
