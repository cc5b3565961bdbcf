package idempotency

import "fmt"

// Codec changes results before they are stored, and back: to compress or to encrypt them.
// It must be safe for concurrent use. A panic counts as an error.
//
// About tells what the bytes belong to, the same for Encode and Decode: an
// encryption should bind it (as associated data), so that who can write to etcd cannot
// show one customer the result of another.
type Codec interface {
	// Name is stored with each result, and tells by which codec it is read. A change of
	// keys or of form needs a new name.
	Name() string
	// Encode returns an error if it cannot; then the outcome is recorded without
	// the result.
	Encode(plain, about []byte) ([]byte, error)
	// Decode returns an error if what is stored was not written by Encode, with the
	// same about. Callers get an ErrUnreadable.
	Decode(stored, about []byte) ([]byte, error)
}

func (s *Store) encode(plain []byte, about string) (stored []byte, codec string, err error) {
	if s.opts.Codec == nil {
		return plain, "", nil
	}
	stored, err = bySomeone(s.opts.Codec.Encode, plain, about)
	return stored, s.opts.Codec.Name(), err
}

// bySomeone calls a Codec. One that panics, on bytes that it has not written, say, shall not
// leave a request without an end.
func bySomeone(fn func(b, about []byte) ([]byte, error), b []byte, about string) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("panic: %v", v)
		}
	}()
	return fn(b, []byte(about))
}

func (s *Store) decode(stored []byte, codec, about string) ([]byte, error) {
	if codec == "" {
		if s.opts.Codec != nil {
			for _, c := range s.opts.OldCodecs {
				if c == Plain {
					return stored, nil
				}
			}
			return nil, fmt.Errorf("%w: it was written without a codec, and Plain is not among the OldCodecs", ErrUnreadable)
		}
		return stored, nil
	}
	for _, c := range s.opts.OldCodecs {
		if c.Name() == codec {
			plain, err := bySomeone(c.Decode, stored, about)
			if err != nil {
				return nil, fmt.Errorf("%w: codec %q: %w", ErrUnreadable, codec, err)
			}
			return plain, nil
		}
	}
	return nil, fmt.Errorf("%w: it was written by codec %q", ErrUnreadable, codec)
}

// Plain, among Options.OldCodecs, lets a Store with a Codec read what was written without
// one. Otherwise it does not, so that nobody can go round an encryption by leaving it out.
var Plain Codec = plain{}

type plain struct{}

func (plain) Name() string                       { return "plain" }
func (plain) Encode(b, _ []byte) ([]byte, error) { return b, nil }
func (plain) Decode(b, _ []byte) ([]byte, error) { return b, nil }
