// Package hold is what the packages that build on a concurrency.Session need of it
// beyond its public methods: its keys, its fence and its trust in its lease. The
// public package hands it over at its start, so nothing here imports it.
package hold

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Session is one concurrency.Session. It is safe for concurrent use.
type Session interface {
	Client() *clientv3.Client
	Space() keyspace.Space
	Source() *mirror.Source
	Log() *zap.Logger
	Holder() string
	TTL() time.Duration
	Margin() time.Duration
	// ReleaseTimeout is how long a call waits for etcd to confirm the end of its work.
	ReleaseTimeout() time.Duration
	// Nonce returns a text that this session has returned never before.
	Nonce() string

	// Live returns the present lease's epoch and waits for one between two leases.
	// It returns concurrency.ErrClosed, or ctx's error joined with why there is none.
	Live(ctx context.Context) (Epoch, error)
	// Unanswered returns a *concurrency.UnavailableError if etcd does not answer this session,
	// or has not answered a request since a time for so long that it counts as unavailable;
	// otherwise nil.
	Unanswered(since time.Time) error
	// Open derives a ctx that also ends, with concurrency.ErrClosed as its cause, when
	// Close begins.
	Open(ctx context.Context) (context.Context, context.CancelFunc)
	// Context ends when Close has waited for the holders.
	Context() context.Context
	// Background runs fn in a goroutine that Close waits for. It returns false, and
	// does nothing, when the session has ended.
	Background(fn func()) bool
}

// Epoch is the life of a session on one lease. It is safe for concurrent use.
type Epoch interface {
	Lease() clientv3.LeaseID
	Fence() *commit.Fence
	// Context ends with the epoch.
	Context() context.Context
	// Valid tells whether the lease may be trusted now.
	Valid() bool
	// Deadline is until when it is trusted as things stand.
	Deadline() time.Time
	// Why tells how the epoch has ended: one of concurrency's errors, and a reason.
	Why() (cause, reason error)
	// Enter counts one more holder that Close waits for, until leave is called or the
	// epoch ends. ok is false, and nothing is counted, if the epoch has ended or Close
	// has begun.
	Enter() (leave func(), ok bool)
}

var of func(session any) Session

// Provide is called by package concurrency at its start.
func Provide(f func(session any) Session) { of = f }

// Of returns what there is of a *concurrency.Session.
func Of(session any) Session { return of(session) }
