// Package aesgcm is a Codec of package idempotency that encrypts what a Store records: results, recovery
// points and details of failures, among them the whole responses that idemhttp and idemgrpc record.
//
// # Guaranteed
//
// Without the key, a reader of etcd, of its backups or of its traffic learns the length of a result, and
// no more. A stored result that was changed, or that was put in place of that of another request, another recovery
// point or another store, is not decrypted: its duplicates get idempotency.ErrUnreadable, and nothing
// runs. Each result is encrypted with AES-256-GCM under a key of its own, which HKDF-SHA-256 derives from
// the key and 32 random bytes, so the number of results under a key is not bounded.
//
// # Not guaranteed
//
// That anything else is encrypted: scopes, operations, names of sessions and recovery points, notes,
// times and the texts of failures are in the clear. Keys and payloads are hashes: see
// idempotency.Options.Secret.
//
// That a writer to etcd cannot put an earlier result of the same request back, or delete it.
//
// # To change a key
//
// A key has an id, which is stored with each result and selects the Codec that reads it. Make three
// rollouts, each in all processes:
//
//  1. Add the Codec of the new key to Options.OldCodecs.
//  2. Make it Options.Codec, and put the previous one into OldCodecs.
//  3. Remove the previous one, at the time at which an old secret is removed: see Options.OldSecrets.
//
// For the first Codec of a store the previous one is idempotency.Plain. If a Codec that is still needed
// is missing, duplicates get idempotency.ErrUnreadable, and nothing runs.
package aesgcm

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/idempotency"
)

// KeySize is the length of a key, in bytes.
const KeySize = 32

// The stored form is a version, the salt of the result's own key, and nonce, ciphertext and tag of
// AES-256-GCM.
const (
	version  = 1
	saltSize = 32
	maxID    = 48
	purpose  = "etcdkit idempotency aes-256-gcm 1"
)

// New returns a Codec that encrypts with a key of KeySize random bytes, such as crypto/rand.Read returns,
// of which id is the name: 1 to 48 characters of visible ASCII, never used for another key. It returns
// idempotency.ErrInvalid for a key or an id of another form. With it comes a Codec that every Store refuses
// (ErrInvalid), so a program that drops the error stores nothing in the clear. The Codec is safe for
// concurrent use, and keeps a copy of the key.
func New(id string, key []byte) (idempotency.Codec, error) {
	var refused *codec // it has no name
	switch {
	case len(key) != KeySize:
		return refused, invalid{fmt.Errorf("aesgcm: new codec %q: the key has %d bytes, not %d", id, len(key), KeySize)}
	case bytes.Equal(key, make([]byte, KeySize)):
		return refused, invalid{fmt.Errorf("aesgcm: new codec %q: the key has zeros alone", id)}
	case id == "" || len(id) > maxID:
		return refused, invalid{fmt.Errorf("aesgcm: new codec: the id %q does not have 1 to %d characters", id, maxID)}
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return refused, invalid{fmt.Errorf("aesgcm: new codec: the id %q has characters that are not visible ASCII", id)}
		}
	}
	return &codec{"aes-256-gcm/" + id, bytes.Clone(key)}, nil
}

type codec struct {
	name string
	key  []byte
}

// Name returns the name, which is empty for the Codec that New returns with an error.
func (c *codec) Name() string {
	if c == nil {
		return ""
	}
	return c.name
}

// String returns the name, so that no log has the key.
func (c *codec) String() string { return c.Name() }

// GoString returns the name, so that no log has the key.
func (c *codec) GoString() string { return c.Name() }

func (c *codec) Encode(plain, about []byte) ([]byte, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	aead, err := c.aead(salt)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 1+saltSize+len(plain)+aead.Overhead())
	return aead.Seal(append(append(out, version), salt...), nil, plain, about), nil
}

// errForm is the error of Decode for what Encode has not returned, or not with the same about.
var errForm = errors.New("aesgcm: decode: the stored bytes were not encrypted with this key for this request")

func (c *codec) Decode(stored, about []byte) ([]byte, error) {
	if len(stored) < 1+saltSize || stored[0] != version {
		return nil, errForm
	}
	aead, err := c.aead(stored[1 : 1+saltSize])
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, stored[1+saltSize:], about)
	if err != nil {
		return nil, errForm
	}
	return plain, nil
}

// aead returns the cipher of one result.
func (c *codec) aead(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, c.key, salt, purpose, KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// invalid is idempotency.ErrInvalid.
type invalid struct{ error }

func (invalid) Is(target error) bool { return target == idempotency.ErrInvalid }
