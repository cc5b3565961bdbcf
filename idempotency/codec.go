package idempotency

import (
	"fmt"
	"reflect"
	"slices"
)

// Codec transforms results before they are stored, and back, to compress or to encrypt them. It
// must be safe for concurrent use. A panic counts as an error.
//
// The parameter about identifies what the bytes belong to, a request or one of its recovery points, in
// one store, and is the same for Encode and Decode. An encryption should use it as associated data: then
// a writer to etcd cannot replace the result of one customer by that of another. Package aesgcm does.
type Codec interface {
	// Name is stored with each result, and selects the codec that reads it. A codec with
	// another key or another format needs another name.
	Name() string
	// Encode transforms bytes to be stored. If it returns an error, the outcome is recorded
	// without its result, which is logged as a warning.
	Encode(plain, about []byte) ([]byte, error)
	// Decode returns the bytes that Encode was given. It returns an error if the stored bytes
	// were not returned by Encode with the same about; then the caller of the Store gets
	// ErrUnreadable.
	Decode(stored, about []byte) ([]byte, error)
}

// codecs are the Codecs of one Store.
type codecs struct {
	own   string  // the name of the one for what is stored from now on; empty is none
	known []Codec // those by which is read, with the own one
	store string  // what the parameter about begins with
}

func newCodecs(o *Options, store string) codecs {
	c := codecs{known: o.OldCodecs, store: store}
	if o.Codec != nil {
		c.own = o.Codec.Name()
	}
	return c
}

// encode transforms what is stored by the Codec of that name, which the store has; an empty name is none.
func (x codecs) encode(codec string, plain []byte, about string) ([]byte, error) {
	if codec == "" {
		return plain, nil
	}
	for _, c := range x.known {
		if c.Name() == codec {
			return recovered(c.Encode, plain, x.store+about)
		}
	}
	return nil, fmt.Errorf("codec %q is neither Options.Codec nor in Options.OldCodecs", codec)
}

// recovered calls a Codec and returns its panic as an error: a request must not stay without an
// end because of bytes that the Codec did not write.
func recovered(fn func(b, about []byte) ([]byte, error), b []byte, about string) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("panic: %v", v)
		}
	}()
	return fn(b, []byte(about))
}

func (x codecs) decode(stored []byte, codec, about string) ([]byte, error) {
	if codec == "" {
		if x.reads(codec) {
			return stored, nil
		}
		return nil, fmt.Errorf("%w: it was written without a codec, and Options.OldCodecs does not have Plain", ErrUnreadable)
	}
	for _, c := range x.known {
		if c.Name() == codec {
			plain, err := recovered(c.Decode, stored, x.store+about)
			if err != nil {
				return nil, fmt.Errorf("%w: codec %q: %w", ErrUnreadable, codec, err)
			}
			return plain, nil
		}
	}
	return nil, fmt.Errorf("%w: it was written by codec %q, which is neither Options.Codec nor in Options.OldCodecs", ErrUnreadable, codec)
}

// reads reports whether a Store reads what a store with that Codec writes; an empty name is none.
func (x codecs) reads(codec string) bool {
	if codec == "" {
		return x.own == "" || slices.Contains(x.known, Plain)
	}
	return slices.ContainsFunc(x.known, func(c Codec) bool { return c.Name() == codec })
}

// checkCodecs returns ErrInvalid if a Codec cannot be found by its name.
func checkCodecs(codecs []Codec) error {
	named := map[string]Codec{}
	for _, c := range codecs {
		if c == nil || c.Name() == "" || len(c.Name()) > 64 {
			return invalid("Options.Codec or an entry of Options.OldCodecs is nil, or its Name does not have 1 to 64 bytes")
		}
		if same, ok := named[c.Name()]; ok && (!reflect.TypeOf(c).Comparable() || c != same) {
			return invalid("two of Options.Codec and Options.OldCodecs have the Name %q: one with another key or another format needs another name", c.Name())
		}
		named[c.Name()] = c
	}
	return nil
}

// Plain, as an entry of Options.OldCodecs, lets a Store with a Codec read results that were stored
// without one. Without Plain they are ErrUnreadable, so that a writer to etcd cannot bypass an
// encryption by storing plain text.
var Plain Codec = plain{}

type plain struct{}

func (plain) Name() string                       { return "plain" }
func (plain) Encode(b, _ []byte) ([]byte, error) { return b, nil }
func (plain) Decode(b, _ []byte) ([]byte, error) { return b, nil }
