package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// issued returns a certificate for a name or an address, by itself, that ends at a time.
func issued(t *testing.T, name string, ends time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "doctor"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// listening starts a gRPC server with these credentials.
func listening(t *testing.T, creds credentials.TransportCredentials) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.Creds(creds))
	pb.RegisterMaintenanceServer(s, &pb.UnimplementedMaintenanceServer{})
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	return lis.Addr().String()
}

// Each mistake with TLS is named in plain words, from what the libraries of both sides really say.
func TestMistakesWithTLS(t *testing.T) {
	t.Parallel()
	year := time.Now().Add(365 * 24 * time.Hour)
	cert, trusted := issued(t, "127.0.0.1", year)
	elsewhere, trustedElsewhere := issued(t, "etcd-1.internal", year)
	old, trustedOld := issued(t, "127.0.0.1", time.Now().Add(-time.Hour))
	_, another := issued(t, "127.0.0.1", year)
	with := func(c tls.Certificate) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c}})
	}
	clients := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert})
	ctx := testkit.Context(t)
	of := func(pool *x509.CertPool) *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool} }
	for name, c := range map[string]struct {
		server credentials.TransportCredentials
		client *tls.Config
		want   string
	}{
		"TLS to a server without":   {insecure.NewCredentials(), of(trusted), "The server speaks no TLS"},
		"no TLS to one with":        {with(cert), nil, "The server does not answer without TLS"},
		"another authority":         {with(cert), of(another), "of another authority"},
		"a name that it has not":    {with(elsewhere), of(trustedElsewhere), "The address is not in the server's certificate"},
		"expired":                   {with(old), of(trustedOld), "has expired, or a clock is wrong"},
		"no certificate of its own": {clients, of(trusted), "wants a certificate of the client"},
	} {
		at := listening(t, c.server)
		if c.client != nil {
			at = "https://" + at
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, TLS: c.client, Logger: zap.NewNop()})
		require.NoError(t, err)
		defer client.Close()
		// A server that refuses the client's certificate closes the connection, and the client may see that
		// before the reason.
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			s := Ask(ctx, client, testkit.Soon, testkit.Soon)
			require.Error(t, s.Answers[0].Err, name)
			found := s.endpoint(s.Answers[0])
			require.Contains(t, found[0].Advice, c.want, "%s: %v", name, s.Answers[0].Err)
		}, testkit.Soon, time.Millisecond)
	}
}

// The end of a server's certificate is known from the connection, a month before.
func TestCertificateThatEndsSoon(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{TLS: true})
	s := Ask(testkit.Context(t), etcd.Client(), testkit.Soon, testkit.Soon)
	require.NoError(t, s.Answers[0].Err)
	found := s.judge(s.Answers[0])
	require.Equal(t, Warn, found[1].Level)
	require.Contains(t, found[1].Text, "the server's certificate ends at 20", "embedtest's ends within a day")
	now := time.Now()
	require.Empty(t, certificate("m", now.Add(31*24*time.Hour), now))
	require.Empty(t, certificate("m", time.Time{}, now))
	require.Contains(t, certificate("m", now.Add(10*24*time.Hour+time.Minute), now)[0].Text, "in 10 days")
}

// A limit of streams is found, where calls above it would wait without an error.
func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	for limit, want := range map[uint32]string{8: "at most 8 streams", 0: "may have 20 streams"} {
		etcd := embedtest.Start(t, &embedtest.Options{Configure: func(c *embed.Config) {
			if limit > 0 {
				c.MaxConcurrentStreams = limit
			}
		}})
		found := Streams(ctx, etcd.Client())
		require.Len(t, found, 1)
		require.Contains(t, found[0].Text, want)
	}
}
