package idempotency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

// Fingerprint is a payload's hash that the caller has computed: for payloads that are not in memory
// as a whole, or of which only a part counts. Use a hash for which no second payload can be found,
// such as SHA-256.
type Fingerprint [sha256.Size]byte

// prints are the fingerprints of a request.
type prints struct {
	payload []byte
	also    []byte   // nil if there is no second payload: then any one agrees
	old     []prints // the same by the OldSecrets; none if they were read from a record
	// child is the payload's hash without a secret, for child keys: it is the same in all
	// attempts, whatever the Secret is. It is never stored, and not compared.
	child []byte
}

// agree reports whether a call with the prints q is for the request with the prints p. The two
// hashes of p may have been made with different secrets: an attempt that takes over keeps also.
func (p prints) agree(q prints) bool {
	return slices.ContainsFunc(q.all(), func(q prints) bool { return bytes.Equal(p.payload, q.payload) }) &&
		(p.also == nil || q.also == nil || slices.ContainsFunc(q.all(), func(q prints) bool { return bytes.Equal(p.also, q.also) }))
}

func (p prints) all() []prints { return append([]prints{p}, p.old...) }

// prints hashes the payloads of a call.
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

// print returns a function that hashes a payload with a secret, or without one if that is empty.
// It returns ErrInvalid for a payload that another one could be mistaken for: see CheckJSON and
// canonical.Value.
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
			return nil, invalid("the payload is a JSON that NewJSON did not return")
		}
		kind, text = 'j', p.text
	case json.RawMessage:
		b, err := canonical.JSON(p)
		if err != nil {
			return nil, invalid("the payload is not JSON that can be compared: %w", err)
		}
		kind, text = 'j', b
	default:
		b, err := canonical.Value(p)
		if err != nil {
			return nil, invalid("the payload cannot be compared by its JSON: %w", err)
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

// JSON is a JSON text in the form in which payloads are compared. As a payload it equals the
// json.RawMessage that NewJSON was given, but Begin need not parse it again. It is immutable and
// safe for concurrent use. The zero value is ErrInvalid as a payload.
type JSON struct{ text []byte }

// NewJSON parses a text, such as the body of a client's request. It returns ErrInvalid where
// CheckJSON does.
func NewJSON(text []byte) (JSON, error) {
	b, err := canonical.JSON(text)
	if err != nil {
		return JSON{}, invalid("not JSON that can be compared: %w", err)
	}
	return JSON{b}, nil
}

// MarshalJSON returns the text in the form in which it is compared, and null for the zero value.
// Its error is always nil.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j.text == nil {
		return []byte("null"), nil
	}
	return bytes.Clone(j.text), nil
}

// CheckJSON reports whether a text can be a payload of type json.RawMessage, so that a server can
// refuse a client's text before Begin does. NewJSON does the same and returns the result. It returns
// ErrInvalid if the text is not JSON, or is JSON that parsers disagree about: an object with the
// same name twice, or text that is not Unicode. Go's decoder takes such a text for another one, so
// two requests might become one.
func CheckJSON(text []byte) error {
	_, err := NewJSON(text)
	return err
}

// printVersion is the first byte of a fingerprint: how it was made.
const printVersion = 1
