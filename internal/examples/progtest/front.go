package progtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// front is a listener in front of an etcd that takes clients with a certificate alone, as an etcd with
// --client-cert-auth does. The etcd behind it has TLS, and knows no client certificates.
type front struct {
	endpoint          string // https://127.0.0.1:1234
	cacert, cert, key string // files: of the authority, and of a client
}

// newFront starts one, which ends with the test.
func newFront(t *testing.T, endpoint string) *front {
	t.Helper()
	at, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	authority := issue(t, nil, "authority")
	server, client := issue(t, authority, "server"), issue(t, authority, "client")
	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*server},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	})
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { forward(ctx, conn, at.Host) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		open.Wait()
	})
	dir := t.TempDir()
	f := &front{endpoint: "https://" + listener.Addr().String(), cacert: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "client.pem"), key: filepath.Join(dir, "client-key.pem")}
	der, err := x509.MarshalECPrivateKey(client.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		f.cacert: {Type: "CERTIFICATE", Bytes: authority.Certificate[0]}, f.cert: {Type: "CERTIFICATE", Bytes: client.Certificate[0]}, f.key: {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// forward copies between a client and etcd until one of them closes, or ctx ends.
func forward(ctx context.Context, client net.Conn, etcd string) {
	defer client.Close()
	server, err := tls.Dial("tcp", etcd, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // of this test
	if err != nil {
		return
	}
	closeBoth := func() { _, _ = client.Close(), server.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(client, server); closeBoth() })
	both.Go(func() { _, _ = io.Copy(server, client); closeBoth() })
	both.Wait()
}

// issue returns a certificate for 127.0.0.1, signed by an authority, or an authority that has signed itself.
func issue(t *testing.T, authority *tls.Certificate, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, any(key)
	if authority == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
