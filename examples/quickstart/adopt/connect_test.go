package adopt

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

// connect makes the client of a cluster with TLS, client certificates and users.
func connect(endpoints []string, ca, cert, key, user, password string, logger *zap.Logger) (*clientv3.Client, error) {
	config, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{
		Endpoints:        endpoints, // all of them, https://
		DialTimeout:      5 * time.Second,
		KeepAliveTime:    10 * time.Second, // gRPC's least
		KeepAliveTimeout: 3 * time.Second,  // on Linux also the time for unacknowledged data
		Secure:           &clientv3.SecureConfig{Cacert: ca, Cert: cert, Key: key},
		Auth:             &clientv3.AuthConfig{Username: user, Password: password},
	}, logger)
	if err != nil {
		return nil, err
	}
	config.Logger = logger
	return clientv3.New(*config)
}

// The code of docs/operations.md reaches such a cluster, and not without the certificate or with another password.
func TestConnect(t *testing.T) {
	etcd := progtest.Etcd(t)
	at := func(flag string) string { return etcd.Flags()[slices.Index(etcd.Flags(), flag)+1] }
	dial := func(cert, key, password string) (*clientv3.Client, error) {
		return connect([]string{at("-endpoints")}, at("-cacert"), cert, key, "example", password, zap.NewNop())
	}
	client, err := dial(at("-cert"), at("-key"), "secret")
	require.NoError(t, err)
	defer client.Close()
	sess, err := concurrency.NewSession(t.Context(), client, "payments", nil)
	require.NoError(t, err)
	require.NoError(t, sess.Close(t.Context()))
	_, err = dial(at("-cert"), at("-key"), "wrong")
	require.ErrorContains(t, err, "authentication failed")
	_, err = dial(at("-cert"), "", "secret")
	require.ErrorContains(t, err, "KeyFile")
}
