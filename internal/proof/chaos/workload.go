package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Workload is something under test: operations on it, and what must be true of it.
// Whatever implements it takes part in a run beside the others.
type Workload interface {
	// Name is short and unique.
	Name() string
	// Queues are the workload's queues in etcd, if it has any, into which
	// nemeses may plant keys.
	Queues(keyspace.Space) []keyspace.Queue
	// Plan draws the next operation of a worker: all that is random about it is
	// drawn from r now, so that the seed decides it.
	Plan(r *rand.Rand) Operation
	// Probe uses the workload from one process once all harm has ended and all
	// operations have returned. It must succeed before ctx ends.
	Probe(ctx context.Context, p *Process) error
}
