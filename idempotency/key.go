package idempotency

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Key says which request is meant: two calls with equal keys are for the same one. All
// three parts count, so one tenant never meets the requests of another, nor one
// operation those of another. The names of etcd's keys are hashes of them. The record
// holds Scope and Op in the clear, for operators, and of ID nothing but the hash.
type Key struct {
	// Scope is whose request it is: a tenant, an account, an API key's owner. It comes
	// from what the caller has proved, not from what he says. Up to 255 bytes, and not
	// empty unless Options.SingleTenant is set.
	Scope string
	// Op is what is requested, such as the method and route: 1 to 255 bytes.
	Op string
	// ID is the idempotency key as the client has chosen it: 1 to 255 bytes.
	ID string
}

// String returns scope and operation, and not the ID: it may be all that a stranger needs
// to see another's response.
func (k Key) String() string { return fmt.Sprintf("%q/%q", k.Scope, k.Op) }

func (k Key) check(single bool) error {
	switch {
	case k.Scope == "" && !single:
		return invalid("Key.Scope is empty (whose request it is, such as a tenant); Options.SingleTenant allows that")
	case len(k.Scope) > keyspace.MaxName:
		return invalid("Key.Scope %.20q… has %d bytes, more than %d", k.Scope, len(k.Scope), keyspace.MaxName)
	case k.Op == "":
		return invalid("Key.Op is empty (the operation, such as \"POST /payments\")")
	case len(k.Op) > keyspace.MaxName:
		return invalid("Key.Op %.20q… has %d bytes, more than %d", k.Op, len(k.Op), keyspace.MaxName)
	case k.ID == "":
		return invalid("Key.ID is empty (the idempotency key that the client has chosen)")
	case len(k.ID) > keyspace.MaxName:
		return invalid("Key.ID has %d bytes, more than %d", len(k.ID), keyspace.MaxName)
	}
	return nil
}
