package concurrency_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// passwords returns the option, which docs/operations.md describes, by which each login of a client asks the program for the
// password. The client's own is a field that must not be changed while it is in use.
func passwords(present func() string) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if login, ok := req.(*etcdserverpb.AuthenticateRequest); ok {
			req = &etcdserverpb.AuthenticateRequest{Name: login.Name, Password: present()}
		}
		return call(ctx, method, req, reply, cc, opts...)
	})
}

// A140: the password is changed under a session whose program supplies the new one, before or after etcd has it.
// Nothing ends, and what waits continues.
func TestPasswordFromTheProgram(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{testkit.On(t, c)}
	require.NoError(t, c.AddUser(ctxT(t), "worker", "first", f.Root))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	var present atomic.Value
	present.Store("first")
	refused, allowed := make(chan struct{}, 100), make(chan struct{}, 100)
	client := c.NewClient(t, &embedtest.ClientOptions{Username: "worker", Password: "first", Configure: func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, passwords(func() string { return present.Load().(string) })) //nolint:forcetypeassert // it is one
	}})
	opts, reported := traced(brisk())
	opts.Logger = logs(map[string]chan<- struct{}{"etcd refuses what the session needs": refused, "etcd allows again": allowed})
	s := f.SessionOn(client.Client, opts)
	p := lock(t, s, "x")
	w := make(chan answer, 1)
	go func() { p, err := mutex(t, s, "x").Lock(ctxT(t)); w <- answer{p, err} }()
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	change := func(to string) {
		_, err := c.Client().UserChangePassword(ctxT(t), "worker", to)
		require.NoError(t, err)
	}
	renewed := func() {
		n := client.Requests()["LeaseKeepAlive.Send"]
		require.Eventually(t, func() bool { return client.Requests()["LeaseKeepAlive.Send"] >= n+3 }, soon, tick)
	}
	change("second") // the program learns of it when etcd has refused a renewal
	got(t, refused, "a renewal is refused")
	present.Store("second")
	got(t, allowed, "the next one is not")
	renewed()
	present.Store("third")
	change("third")
	renewed()
	require.NoError(t, p.Err())
	require.Empty(t, reported.lost)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, granted(t, w, "the waiter gets in").Release(ctxT(t)))
}

// A140: a second user with the same role is rolled out, and then the first one is deleted: each process has
// closed its former session by then, and loses nothing.
func TestSecondUser(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	f := fixture{testkit.On(t, c)}
	require.NoError(t, c.AddUser(ctxT(t), "app", "one", f.Root))
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "root"))
	as := func(user, password string) *clientv3.Client {
		return c.NewClient(t, &embedtest.ClientOptions{Username: user, Password: password}).Client
	}
	opts, reported := traced(brisk())
	former := f.SessionOn(as("app", "one"), opts)
	p := lock(t, former, "x")
	_, err := c.Client().UserAdd(ctxT(t), "app-2", "two")
	require.NoError(t, err)
	_, err = c.Client().UserGrantRole(ctxT(t), "app-2", "app")
	require.NoError(t, err)
	next := f.SessionOn(as("app-2", "two"), opts)
	w := make(chan answer, 1)
	go func() { p, err := mutex(t, next, "x").Lock(ctxT(t)); w <- answer{p, err} }()
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, former.Close(ctxT(t)))
	_, err = c.Client().UserDelete(ctxT(t), "app")
	require.NoError(t, err)
	p = granted(t, w, "the other one's process gets in")
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, lock(t, next, "y").Release(ctxT(t)))
	require.Empty(t, reported.lost)
}

// authority signs certificates for clients and for the server.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	issued := a.issue("authority")
	a.cert, a.key = issued.Leaf, issued.PrivateKey.(*ecdsa.PrivateKey) //nolint:forcetypeassert // issue makes these
	return a
}

// issue returns a certificate for a name, and writes it to files.
func (a *authority) issue(name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	for suffix, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		require.NoError(a.t, os.WriteFile(a.path(name, suffix), pem.EncodeToMemory(block), 0o600))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) path(name, suffix string) string { return filepath.Join(a.dir, name+suffix) }

// serve starts an etcd that knows its clients by their certificates, and returns its address.
func (a *authority) serve() string {
	a.issue("server")
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = a.t.TempDir(), "panic", true
	local := url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{local}, []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = a.path("server", ".pem"), a.path("server", ".key")
	cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = a.path("authority", ".pem"), true
	etcd, err := embed.StartEtcd(cfg)
	require.NoError(a.t, err)
	a.t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return etcd.Clients[0].Addr().String()
}

// A141: a client asks GetClientCertificate at each connection, so a certificate is replaced while a session
// lives: the next connection has the new one. A user that is known by the name in it needs no password.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	at := ca.serve()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	var present atomic.Pointer[tls.Certificate]
	var mu sync.Mutex
	var shown []*big.Int // serial numbers, of each connection
	var open []net.Conn
	dial := func(name string) *clientv3.Client {
		first := ca.issue(name)
		present.Store(&first)
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + at}, Logger: zap.NewNop(),
			TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				c := present.Load()
				mu.Lock()
				defer mu.Unlock()
				shown = append(shown, c.Leaf.SerialNumber)
				return c, nil
			}},
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				mu.Lock()
				defer mu.Unlock()
				open = append(open, conn)
				return conn, err
			})},
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	ctx := ctxT(t)
	admin := dial("root")
	for _, name := range []string{"root", "app"} {
		_, err := admin.RoleAdd(ctx, name)
		require.NoError(t, err)
		_, err = admin.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})
		require.NoError(t, err)
		_, err = admin.UserGrantRole(ctx, name, name)
		require.NoError(t, err)
	}
	const root = "/rotated/"
	_, err := admin.RoleGrantPermission(ctx, "app", root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)

	mu.Lock()
	open = nil
	mu.Unlock()
	client := dial("app")
	opts, reported := traced(brisk())
	s := testkit.SessionOn(t, client, root, opts)
	p := lock(t, s, "x")
	second := ca.issue("app")
	present.Store(&second)
	mu.Lock()
	for _, conn := range open {
		_ = conn.Close()
	}
	mu.Unlock()
	require.NoError(t, lock(t, s, "y").Release(ctx))
	mu.Lock()
	require.Equal(t, second.Leaf.SerialNumber, shown[len(shown)-1])
	mu.Unlock()
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
	require.Empty(t, reported.lost)
}
