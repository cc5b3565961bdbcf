package idempotency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
)

// Fingerprint is a hash of a payload that the caller has made: for payloads that are not
// at hand in one piece, or of which only a part counts. It must be one that nobody can
// find a second payload for, such as SHA-256.
type Fingerprint [sha256.Size]byte

// print hashes a payload: see Store.Begin.
func (s *Store) print(payload any) ([]byte, error) {
	kind, text := byte('b'), []byte(nil)
	switch p := payload.(type) {
	case nil:
	case []byte:
		text = p
	case string:
		text = []byte(p)
	case Fingerprint:
		kind, text = 'f', p[:]
	case json.RawMessage:
		canonical, err := canonicalJSON(p)
		if err != nil {
			return nil, invalid("the payload is no JSON: %w", err)
		}
		kind, text = 'j', canonical
	default:
		b, err := json.Marshal(p)
		if err != nil {
			return nil, invalid("the payload has no JSON: %w", err)
		}
		canonical, err := canonicalJSON(b)
		if err != nil {
			return nil, invalid("the payload has no JSON: %w", err)
		}
		kind, text = 'j', canonical
	}
	h := sha256.New()
	if len(s.opts.Secret) > 0 {
		h = hmac.New(sha256.New, s.opts.Secret)
	}
	h.Write([]byte{printVersion, kind})
	h.Write(text)
	return h.Sum([]byte{printVersion}), nil
}

// printVersion is the first byte of a fingerprint: how it was made.
const printVersion = 1

// canonicalJSON sorts the members of objects and leaves out what means nothing. Numbers
// stay as they were written: 1 and 1.0 differ.
func canonicalJSON(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err == nil {
		return nil, invalid("something follows after it")
	}
	return json.Marshal(v)
}
