package idempotency

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Key identifies a request: calls with equal keys are for the same request. All three parts
// count, so requests of two tenants, or of two operations, never share a record. Names of keys in
// etcd are hashes of them. The record contains Scope and Op in plain text, for operators, and only
// a hash of ID.
type Key struct {
	// Scope is the account that sends the request: a tenant, a customer, the account of an API
	// key. Take it from what was authenticated, not from what the client claims. It has up to 255
	// bytes, and is empty only if Options.SingleTenant is set.
	Scope string
	// Op is the requested operation, such as method and route: 1 to 255 bytes.
	Op string
	// ID is the idempotency key that the client has chosen: 1 to 255 bytes.
	ID string
}

// String returns scope and operation. It leaves the ID out, which may be all that another client
// needs to get the response.
func (k Key) String() string { return fmt.Sprintf("%q/%q", k.Scope, k.Op) }

func (k Key) check(single bool) error {
	switch {
	case k.Scope == "" && !single:
		return invalid("Key.Scope is empty (the account that sends the request, such as a tenant; Options.SingleTenant allows an empty scope)")
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
