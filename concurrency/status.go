package concurrency

import (
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Status is the state of a semaphore, mutex or election at one revision of etcd.
type Status struct {
	Name   string
	Limit  int  // 0 if it is paused, or if none is stored
	Stored bool // whether a limit is stored and readable: not for a name that no program uses
	// Unreadable is why a limit that is stored cannot be read: it is of a later release, or damaged. It is nil otherwise.
	Unreadable error
	// Used is the weight of the holders; above Limit for a while after SetLimit has lowered it. At the
	// key of a KeyedLimiter with a total it includes the requests that wait for the total.
	Used     int
	Revision int64 // of etcd, as of which all this is true
	// Holders are the requests that hold a permit or may hold one. If the limit was deleted
	// or cannot be read, that is every request.
	Holders []Request
	Waiters []Request // in the order in which they are served
	// Foreign counts keys in the queue's range that are not this library's or have no
	// lease. They block no request.
	Foreign int
}

// equal reports whether two states of one queue differ in their revisions at most.
func (s Status) equal(t Status) bool {
	return s.Limit == t.Limit && s.Stored == t.Stored && s.Unreadable == t.Unreadable && s.Used == t.Used && s.Foreign == t.Foreign &&
		slices.Equal(s.Holders, t.Holders) && slices.Equal(s.Waiters, t.Waiters)
}

// Request is one request in a queue: it waits, or it holds a permit.
type Request struct {
	Token  int64  // identifies it, see Semaphore.EvictToken; lower is older
	ID     string // if its caller gave one
	Owner  string // SessionOptions.Owner of its session
	Note   string
	Weight int
	// WaitsFor says, of a waiter at the key of a KeyedLimiter with a total, at which level it waits.
	WaitsFor Level
	Lease    clientv3.LeaseID
	// Requested is when the request was made, by the clock of the machine that made it; zero if what is
	// stored is no time of the years 1 to 9998. The time of the grant is not stored, because a waiter
	// that is admitted writes nothing: Watch shows it.
	Requested time.Time
	// MaxHold is the option MaxHold of the call, in whole milliseconds. It is 0 without the option,
	// with the SemaphoreOptions Keep or Handover, by which a request serves several calls, and if the
	// release of the request's program does not store it.
	MaxHold time.Duration
	// Renewed is when the request's session last renewed its lease, or up to a second before
	// that. A live session renews three times per TTL. An old permit with a recent renewal is
	// held by a live process, which may be stuck; an old permit with an old renewal by a
	// process that is dead or cannot reach etcd. ExpiresBy is when the permit is free at the
	// latest if the session does not renew its lease again. It includes a second and a half
	// in reserve, because etcd rounds down to seconds and checks for expired leases every half
	// second. A new leader of etcd renews all leases, which moves both times on.
	//
	// Both are etcd's answers about the lease, by this machine's clock. Status with
	// CheckLeases sets them; elsewhere, and without an answer, they are zero.
	Renewed, ExpiresBy time.Time
}

// StatusOption changes one call of Status.
type StatusOption func(*statusRead)

// statusRead is what one call of Status asks for.
type statusRead struct{ leases bool }

// CheckLeases lets Status ask etcd about the leases of the holders, for Request.Renewed and
// ExpiresBy: one request for each lease, of the 64 oldest at most. Without it Status cannot
// distinguish a holder that is stuck from one that is dead.
func CheckLeases() StatusOption { return func(r *statusRead) { r.leases = true } }

func describe(r mirror.Request) Request {
	of := r.Record()
	return Request{
		Token: r.Create, ID: of.ID, Owner: of.Owner, Note: of.Note,
		Weight: int(r.Weight), MaxHold: of.MaxHold(), Lease: clientv3.LeaseID(r.Slot.Lease), Requested: record.Time(of.AtMS),
	}
}

func describeAll(rs []mirror.Request) []Request {
	out := make([]Request, len(rs))
	for i, r := range rs {
		out[i] = describe(r)
	}
	return out
}

// Level is one of the two levels at which a KeyedLimiter limits.
type Level string

// The levels of a KeyedLimiter.
const (
	LevelKey   Level = "key"
	LevelTotal Level = "total"
)
