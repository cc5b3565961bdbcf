package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certify writes an authority and the certificates of a server and a client into a folder, for a year. They replace
// those of an earlier start.
func certify(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	now := time.Now()
	template := func(name string, usage x509.KeyUsage) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
			KeyUsage: usage, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		}
	}
	authority := template("etcdkit-dev authority", x509.KeyUsageCertSign)
	authority.IsCA = true
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := issue(dir, "ca", authority, authority, signer, signer); err != nil {
		return err
	}
	for _, name := range []string{"server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := issue(dir, name, template("etcdkit-dev "+name, x509.KeyUsageDigitalSignature), authority, key, signer); err != nil {
			return err
		}
	}
	return nil
}

// issue writes a certificate, and its key unless it is the authority's, which issues no other.
func issue(dir, name string, template, authority *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, signer)
	if err != nil {
		return fmt.Errorf("issue the certificate %s: %w", name, err)
	}
	blocks := map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}}
	if key != signer {
		secret, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return fmt.Errorf("issue the certificate %s: %w", name, err)
		}
		blocks[name+".key"] = &pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}
	}
	for file, block := range blocks {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}
