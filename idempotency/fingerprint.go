package idempotency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

// Fingerprint is a hash of a payload that the caller has made: for payloads that are not
// at hand in one piece, or of which only a part counts. It must be one that nobody can
// find a second payload for, such as SHA-256.
type Fingerprint [sha256.Size]byte

// prints are the fingerprints of a request.
type prints struct {
	payload []byte
	also    []byte   // nil: there is none, and any will do
	old     []prints // of the same, by the OldSecrets; none if they were read
	// child is the payload's hash without a secret, for child keys: it is the same in all
	// attempts, whatever the Secret is. It is never stored, and not compared.
	child []byte
}

// agree reports whether a call with the prints q is for the request with the prints p. The
// two of p may have been made with different secrets: an attempt that takes over keeps also.
func (p prints) agree(q prints) bool {
	return slices.ContainsFunc(q.all(), func(q prints) bool { return bytes.Equal(p.payload, q.payload) }) &&
		(p.also == nil || q.also == nil || slices.ContainsFunc(q.all(), func(q prints) bool { return bytes.Equal(p.also, q.also) }))
}

func (p prints) all() []prints { return append([]prints{p}, p.old...) }

// prints hashes what a call says of its request.
func (s *Store) prints(payload any, set settings) (p prints, err error) {
	print, err := s.print(payload)
	if err != nil {
		return p, err
	}
	also := func([]byte) []byte { return nil }
	if set.also != nil {
		if also, err = s.print(set.also); err != nil {
			return p, err
		}
	}
	p.payload, p.also, p.child = print(s.opts.Secret), also(s.opts.Secret), print(nil)
	for _, secret := range s.opts.OldSecrets {
		p.old = append(p.old, prints{payload: print(secret), also: also(secret)})
	}
	return p, nil
}

// print returns what hashes a payload with a secret, or without if that is empty: see
// Store.Begin. It returns ErrInvalid for one that JSON does not distinguish from others: see CheckJSON,
// and canonical.Value.
func (s *Store) print(payload any) (hash func(secret []byte) []byte, err error) {
	kind, text := byte('b'), []byte(nil)
	switch p := payload.(type) {
	case nil:
	case []byte:
		text = p
	case string:
		text = []byte(p)
	case Fingerprint:
		kind, text = 'f', p[:]
	case JSON:
		if p.text == nil {
			return nil, invalid("the payload is a JSON that NewJSON has not made")
		}
		kind, text = 'j', p.text
	case json.RawMessage:
		b, err := canonical.JSON(p)
		if err != nil {
			return nil, invalid("the payload is no JSON that can be compared: %w", err)
		}
		kind, text = 'j', b
	default:
		b, err := canonical.Value(p)
		if err != nil {
			return nil, invalid("the payload has no JSON by which it can be compared: %w", err)
		}
		kind, text = 'j', b
	}
	return func(secret []byte) []byte {
		h := sha256.New()
		if len(secret) > 0 {
			h = hmac.New(sha256.New, secret)
		}
		h.Write([]byte{printVersion, kind})
		h.Write(text)
		return h.Sum([]byte{printVersion})
	}, nil
}

// JSON is a text that can be a payload, in the form in which it is compared. As a payload it is
// the same as the json.RawMessage of which it was made, which is read once then, and not
// again by Begin. It never changes, and is safe for concurrent use.
type JSON struct{ text []byte }

// NewJSON reads a text that a client has sent, say. It returns ErrInvalid where CheckJSON does.
func NewJSON(text []byte) (JSON, error) {
	b, err := canonical.JSON(text)
	if err != nil {
		return JSON{}, invalid("no JSON that can be compared: %w", err)
	}
	return JSON{b}, nil
}

// MarshalJSON returns the text in the form in which it is compared, or null for the zero
// value. Its error is always nil.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j.text == nil {
		return []byte("null"), nil
	}
	return bytes.Clone(j.text), nil
}

// CheckJSON reports whether a text can be a payload as json.RawMessage: for those who have it
// from a client, and answer by that; NewJSON does so, and keeps the result. It returns
// ErrInvalid if it is no JSON, or is some that readers disagree about: with a name that
// stands twice in an object, or with text that is no Unicode. Go's own decoder takes these
// for others, so two requests might become one.
func CheckJSON(text []byte) error {
	_, err := NewJSON(text)
	return err
}

// printVersion is the first byte of a fingerprint: how it was made.
const printVersion = 1
