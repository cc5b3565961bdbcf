package procs_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// M17: what docs/operations.md says of etcd's tokens: a simple one lives while it is used, and its members forget it when
// they are restarted; a signed one ends at its time, and outlives restarts. Neither end costs a permit.
func TestTokens(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("tokens live for seconds")
	}
	public, private := keys(t)
	simple, jwt := "--auth-token=simple", "--auth-token=jwt,pub-key="+public+",priv-key="+private+",sign-method=RS256,ttl="
	for name, tt := range map[string]struct {
		flags   []string
		restart bool
		logins  bool // clients log in again
	}{
		"simple, in use":    {[]string{simple, "--auth-token-ttl=3"}, false, false},
		"simple, restarted": {[]string{simple, "--auth-token-ttl=300"}, true, true},
		"jwt, at its end":   {[]string{jwt + "3s"}, false, true},
		"jwt, restarted":    {[]string{jwt + "5m"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, 3)
			o.Args = append(tt.flags, "--bcrypt-cost=4")
			c, err := procs.Start(ctxT(t), o)
			require.NoError(t, err)
			t.Cleanup(c.Close)
			require.NoError(t, c.EnableAuth(ctxT(t), "root", "secret"))
			var logins atomic.Int64
			client := counted(t, c.Endpoints(), &logins)
			_, err = client.Get(ctxT(t), "k")
			require.NoError(t, err)
			session, err := concurrency.NewSession(ctxT(t), counted(t, c.Endpoints(), new(atomic.Int64)), "tokens", nil) // its streams log in, too
			require.NoError(t, err)
			mutex, err := concurrency.NewMutex(session, "m")
			require.NoError(t, err)
			permit, err := mutex.Lock(ctxT(t))
			require.NoError(t, err)
			use := func(d time.Duration) {
				for begun := time.Now(); time.Since(begun) < d; time.Sleep(100 * time.Millisecond) {
					_, err := client.Get(ctxT(t), "k")
					require.NoError(t, err)
				}
			}
			use(time.Second) // what a killed member has not stored yet, it applies again, logins too
			before := logins.Load()
			if tt.restart {
				require.NoError(t, c.Restart(ctxT(t), 0, 1))
			}
			use(5 * time.Second)
			t.Logf("logins again: %d", logins.Load()-before)
			require.Equal(t, tt.logins, logins.Load() > before)
			require.NoError(t, permit.Err())
			require.NoError(t, permit.Release(ctxT(t)))
		})
	}
}

// counted returns a client that counts its logins.
func counted(t *testing.T, endpoints []string, logins *atomic.Int64) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Username: "root", Password: "secret", Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			begun := time.Now()
			err := invoke(ctx, method, req, reply, cc, opts...)
			if method == "/etcdserverpb.Auth/Authenticate" {
				logins.Add(1)
				t.Logf("a login took %v", time.Since(begun))
			}
			return err
		})},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// keys writes the two keys of signed tokens to files.
func keys(t *testing.T) (public, private string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return write("token.pub", "PUBLIC KEY", der), write("token.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}
