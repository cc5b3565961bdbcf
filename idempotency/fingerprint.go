package idempotency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"sync"

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
	also := func(q prints) bool { return bytes.Equal(p.also, q.also) }
	return p.samePayload(q) && (p.also == nil || q.also == nil || also(q) || slices.ContainsFunc(q.old, also))
}

// samePayload is agree without the second payloads.
func (p prints) samePayload(q prints) bool {
	payload := func(q prints) bool { return bytes.Equal(p.payload, q.payload) }
	return payload(q) || slices.ContainsFunc(q.old, payload)
}

// content is what is hashed of the payloads of a call.
type content struct{ payload, also compared }

// compared is a payload in the form in which it is compared; the zero value is none.
type compared struct {
	kind byte
	text []byte
}

// contents returns what the hashes of a call are made of. It returns ErrInvalid for a payload that
// another one could be mistaken for: see CheckJSON and canonical.Value.
func contents(payload, also any) (c content, err error) {
	if c.payload, err = form(payload); err == nil && also != nil {
		c.also, err = form(also)
	}
	return c, err
}

// printer makes the fingerprints of one Store.
type printer struct {
	own  *hashes  // with the present Secret
	bare *hashes  // without a secret
	old  [][]byte // Options.OldSecrets
}

func newPrinter(o *Options) printer {
	p := printer{own: newHashes(o.Secret), bare: newHashes(nil), old: o.OldSecrets}
	if len(o.Secret) == 0 {
		p.bare = p.own
	}
	return p
}

// present returns the fingerprints by the present Secret, without what only a new attempt and a
// mismatch need.
func (p *printer) present(c content) prints {
	return prints{payload: p.own.sum(c.payload), also: p.own.sum(c.also)}
}

// complete returns the fingerprints of with what present leaves out.
func (p *printer) complete(of prints, c content) prints {
	of.child = of.payload
	if p.bare != p.own {
		of.child = p.bare.sum(c.payload)
	}
	for _, secret := range p.old {
		h := newHashes(secret)
		of.old = append(of.old, prints{payload: h.sum(c.payload), also: h.sum(c.also)})
	}
	return of
}

// form returns the form in which a payload is compared.
func form(payload any) (compared, error) {
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
		if p == (JSON{}) {
			return compared{}, invalid("the payload is a JSON that NewJSON did not return")
		}
		kind, text = 'j', p.sum[:]
	case json.RawMessage:
		sum, err := canonical.JSON(p)
		if err != nil {
			return compared{}, invalid("the payload is not JSON that can be compared: %w", err)
		}
		kind, text = 'j', sum[:]
	default:
		sum, err := canonical.Value(p)
		if err != nil {
			return compared{}, invalid("the payload cannot be compared by its JSON: %w", err)
		}
		kind, text = 'j', sum[:]
	}
	return compared{kind, text}, nil
}

// hashes makes fingerprints with one secret, or without one if that is empty. It is safe for
// concurrent use.
type hashes struct{ free sync.Pool } // of hash.Hash

func newHashes(secret []byte) *hashes {
	return &hashes{sync.Pool{New: func() any {
		if len(secret) > 0 {
			return hmac.New(sha256.New, secret)
		}
		return sha256.New()
	}}}
}

// sum returns the fingerprint of a payload, nil for none.
func (s *hashes) sum(c compared) []byte {
	if c.kind == 0 {
		return nil
	}
	h := s.free.Get().(hash.Hash)
	defer s.free.Put(h)
	h.Reset()
	out := append(make([]byte, 0, 1+sha256.Size), printVersion, c.kind)
	h.Write(out)
	h.Write(c.text)
	return h.Sum(out[:1])
}

// JSON is what a JSON text is compared by: a hash that all texts of the same JSON have in common. As a
// payload it equals the json.RawMessage that NewJSON was given, but Begin need not read the text
// again. It is immutable and safe for concurrent use. The zero value is ErrInvalid as a payload.
type JSON struct{ sum canonical.Sum }

// NewJSON reads a text, such as the body of a client's request, and keeps no part of it. It returns
// ErrInvalid where CheckJSON does.
func NewJSON(text []byte) (JSON, error) {
	sum, err := canonical.JSON(text)
	if err != nil {
		return JSON{}, invalid("not JSON that can be compared: %w", err)
	}
	return JSON{sum}, nil
}

// Fingerprint returns the hash, to be hashed together with other parts of a payload.
func (j JSON) Fingerprint() Fingerprint { return Fingerprint(j.sum) }

// MarshalJSON returns the hash as a string, so that a JSON can be part of another payload, and null
// for the zero value. Its error is always nil.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == (JSON{}) {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, `"sha256:%x"`, j.sum), nil
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
