#!/usr/bin/env bash
# Guess: a client without the certificate that the server demands gets an error of TLS, as with curl.
# Really: in TLS 1.3 a client's handshake is complete before the server has looked at its certificate. The alert
#   comes afterwards and ends the connection; gRPC connects again, and etcd's client returns a bare "context deadline
#   exceeded", to New's caller and to a read's. With at most TLS 1.2 the handshake itself fails, and the error is as bare.
#   gRPC has the reason ("certificate required"): with the dial options WithBlock and WithReturnConnectionError, New's error
#   has it.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16
# Source: client/v3/client.go, dial and newClient; RFC 8446, 4.4.2.4 and 6.2.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS=-mod=mod GOWORK=off
cat > main.go <<'G'
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// certificate writes a certificate that signs itself, and its key.
func certificate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	must(err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(os.WriteFile("crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile("key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

func free() url.URL {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer l.Close()
	return url.URL{Scheme: "https", Host: l.Addr().String()}
}

func main() {
	certificate()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.LogOutputs = "data", "fatal", []string{"/dev/null"}
	at, peer := free(), free()
	peer.Scheme = "http"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{at}, []url.URL{at}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: "crt", KeyFile: "key", TrustedCAFile: "crt", ClientCertAuth: true}
	e, err := embed.StartEtcd(cfg)
	must(err)
	defer e.Close()
	<-e.Server.ReadyNotify()

	pool := x509.NewCertPool()
	ca, err := os.ReadFile("crt")
	must(err)
	pool.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair("crt", "key")
	must(err)
	try := func(what string, t *tls.Config, opts ...grpc.DialOption) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{at.String()}, TLS: t, DialTimeout: 3 * time.Second, DialOptions: opts, Logger: zap.NewNop()})
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			_, err = c.Get(ctx, "x")
			cancel()
			c.Close()
		}
		fmt.Printf("%s: %v\n", what, err)
	}
	try("with one", &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
	try("without", &tls.Config{RootCAs: pool})
	try("without, TLS 1.2", &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12})
	try("without, asked for the reason", &tls.Config{RootCAs: pool}, grpc.WithBlock(), grpc.WithReturnConnectionError())
}
G
cat > go.mod <<'G'
module finding
go 1.24
require (
	go.etcd.io/etcd/client/pkg/v3 v3.6.16
	go.etcd.io/etcd/client/v3 v3.6.16
	go.etcd.io/etcd/server/v3 v3.6.16
)
G
go mod tidy >/dev/null 2>&1
go run . 2>/dev/null | tee out
grep -qx 'with one: <nil>' out
grep -qx 'without: context deadline exceeded' out
grep -qx 'without, TLS 1.2: context deadline exceeded' out
grep -q '^without, asked for the reason: context deadline exceeded: .*tls: certificate required' out
