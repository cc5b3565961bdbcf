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
	if k.Scope != "" || !single {
		if err := keyspace.CheckID(k.Scope); err != nil {
			return invalid("the key's scope: %w", err)
		}
	}
	if err := keyspace.CheckID(k.Op); err != nil {
		return invalid("the key's operation: %w", err)
	}
	switch {
	case k.ID == "":
		return invalid("the key's ID is empty")
	case len(k.ID) > keyspace.MaxName:
		return invalid("the key's ID has %d bytes, more than %d", len(k.ID), keyspace.MaxName)
	}
	return nil
}
